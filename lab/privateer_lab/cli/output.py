"""Output of commands: JSON for machines, tables and progress bars for people."""

import json
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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from privateer_core.errors import SpecError, printable
from privateer_lab.figures import readable

T = TypeVar("T")
_WIDE = 10_000
"""Columns of an output that is no terminal, so that nothing wraps."""
screen = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def open_folder(folder: Path, field: str) -> None:
    """Make a folder and check that files can be written there, before anything runs whose figures it is for.

    field: the option that names it.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise SpecError(f"{path} is a file, not a folder", field=field, remedy="name a folder, or move the file")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def begin(what: str, takes: str) -> None:
    """Say on standard error what begins, and how long it may take; for people, so not beside JSON."""
    typer.echo(f"privateer: {printable(what)}: {takes} ...", err=True)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, rows: Iterable[tuple[str, Any]]) -> None:
    """Print a two-column table of names and figures. Documents have no infinity: an epsilon of None is infinite."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(_cell(name), _cell("infinite" if value is None and "epsilon" in name else value))
    print_titled(title, table)


def print_rows(title: str, rows: Sequence[Mapping[str, Any]], *, words_left: bool = False) -> None:
    """Print a table with a column for each key of the rows; words are at the left if that is wanted."""
    table = Table()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for name in columns:
        is_words = words_left and any(isinstance(row.get(name), str) and row[name] for row in rows)
        table.add_column(_cell(name), justify="left" if is_words else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(name, "")) for name in columns))
    print_titled(title, table)


def _cell(value: Any) -> str:
    return escape(printable(readable(value)))


def print_titled(title: str, table: Table) -> None:
    """Print a table under its title, which may be the longer of the two."""
    screen.print(printable(title), style="italic", markup=False, soft_wrap=True)
    screen.print(table)


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C within the block."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def progress(items: Iterable[T], total: int, label: str, before: int = 0) -> list[T]:
    """Collect ``items`` behind a progress bar on standard error, which only a terminal shows.

    A ``total`` of 0 means that it is not known; of it ``before`` have come already. Ctrl-C and SIGTERM end the work and
    its processes: what has come so far is returned, if anything has, and a line says how much that is.
    """
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal)
    with _terminable(), bar:
        task = bar.add_task(label, total=total or None, completed=before)
        done: list[T] = []
        try:
            for item in items:
                done.append(item)
                bar.advance(task)
        except KeyboardInterrupt:
            if not before + len(done):
                raise
            typer.echo(f"privateer: interrupted after {before + len(done)} of {total or 'more'} {label}", err=True)
        return done
