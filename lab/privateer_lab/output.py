"""What commands print: JSON for machines, tables and progress bars for people."""

import json
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from privateer.text import printable

T = TypeVar("T")
_WIDE = 10_000
"""Columns of an output that is no terminal, so that nothing wraps."""
screen = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)


def open_folder(folder: Path) -> None:
    """Make a folder, and see that files can be written there: before the runs whose figures it is for.

    Raises
    ------
    OSError
        If that cannot be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, rows: Iterable[tuple[str, Any]]) -> None:
    """A two-column table of names and figures."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(escape(printable(name)), escape(printable(readable(value))))
    print_titled(title, table)


def print_titled(title: str, table: Table) -> None:
    """A table under its title, which may be the longer of the two."""
    screen.print(printable(title), style="italic", markup=False, soft_wrap=True)
    screen.print(table)


def readable(value: Any) -> str:
    """A figure for people: thousands separated, four significant digits for small fractions, yes or no."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def _terminable() -> Iterator[None]:
    """Within the block SIGTERM is Ctrl-C."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def progress(items: Iterable[T], total: int, label: str) -> list[T]:
    """Collect ``items`` behind a progress bar on standard error, shown on a terminal only.

    A ``total`` of 0 is one that is not known. Ctrl-C and SIGTERM end it, and the processes that work on it: what has
    come so far is returned, if anything has, and a line says how much that is.
    """
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal)
    with _terminable(), bar:
        task = bar.add_task(label, total=total or None)
        done: list[T] = []
        try:
            for item in items:
                done.append(item)
                bar.advance(task)
        except KeyboardInterrupt:
            if not done:
                raise
            typer.echo(f"privateer: interrupted after {len(done)} of {total or 'more'} {label}", err=True)
        return done
