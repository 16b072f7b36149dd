"""Output of commands: JSON for machines, tables and progress bars for people."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from privateer_core.errors import SpecError, printable
from privateer_lab.render.words import JSON_FORMAT, format_figure

T = TypeVar("T")
_UNLIMITED_WIDTH = 10_000
"""Width of an output that is no terminal and has no COLUMNS, so that no line is wrapped."""
screen = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _UNLIMITED_WIDTH)


def open_folder(folder: Path, field: str) -> None:
    """Create a folder, and refuse one without room for files, before a long run starts; ``field`` is the option."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise SpecError(f"{path} is a file, not a folder", field=field, remedy="name a folder, or move the file")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def announce_task(task: str, duration: str) -> None:
    """Print a task that starts, and its expected duration, on standard error."""
    typer.echo(f"privateer: {printable(task)}: {duration} ...", err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on standard output, with its format."""
    typer.echo(json.dumps({"format": JSON_FORMAT, **document}, indent=2))


def print_table(title: str, rows: Iterable[tuple[str, Any]]) -> None:
    """Print a two-column table of names and figures. Documents have no infinity: an epsilon of None is infinite."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(_format_cell(name), _format_cell("infinite" if value is None and "epsilon" in name else value))
    _print_titled(title, table)


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a column for each key of the rows, words to the left and figures to the right."""
    table = Table()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for name in columns:
        is_words = any(isinstance(row.get(name), str) and row[name] for row in rows)
        table.add_column(_format_cell(name), justify="left" if is_words else "right")
    for row in rows:
        table.add_row(*(_format_cell(row.get(name, "")) for name in columns))
    _print_titled(title, table)


def _format_cell(value: Any) -> str:
    return escape(printable(format_figure(value)))


def _print_titled(title: str, table: Table) -> None:
    """Print a table under its title, which may be the longer of the two."""
    print_lines([title], style="italic")
    screen.print(table)


def print_lines(lines: Iterable[str], style: str | None = None) -> None:
    """Print each text in a line of its own, without markup and control characters."""
    for line in lines:
        screen.print(printable(line), style=style, soft_wrap=True, markup=False)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM within the block."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def progress(items: Iterable[T], total: int, label: str, n_done: int = 0) -> list[T]:
    """Collect ``items`` behind a progress bar on standard error, which only a terminal shows.

    A ``total`` of 0 is unknown; ``n_done`` items were collected earlier. Ctrl-C and SIGTERM end the work and its
    processes: the items so far are returned, if there are any, and a line states their number.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal)
    with interrupt_on_sigterm(), bar:
        task = bar.add_task(label, total=total or None, completed=n_done)
        collected: list[T] = []
        try:
            for item in items:
                collected.append(item)
                bar.advance(task)
        except KeyboardInterrupt:
            if not n_done + len(collected):
                raise
            typer.echo(f"privateer: interrupted after {n_done + len(collected)} of {total or 'more'} {label}", err=True)
        return collected
