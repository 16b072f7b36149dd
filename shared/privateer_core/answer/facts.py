"""Facts, tables whose columns say what they hold, and checks of names and figures for screens."""

import math
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

NAME_MAX: Final = 256
"""Characters of a name or a sentence that a server sends."""
Cell: TypeAlias = str | bool | int | float | None
Kind: TypeAlias = Literal[
    "words", "yes or no", "number", "count", "share", "probability", "reward", "difference", "time", "low", "high"
]
"""What a figure is: `low` and `high` are the ends of the interval of the column before them."""


def check_names(*names: str) -> None:
    """Refuse names that a screen must not be given.

    Raises
    ------
    ValueError
        If one is empty, too long, or has characters that control a terminal.
    """
    if not all(0 < len(name) <= NAME_MAX and name.isprintable() for name in names):
        raise ValueError(f"a name must have 1 to {NAME_MAX} printable characters")


def check_finite(figures: Iterable[object], what: str) -> None:
    """Refuse figures that are infinite or not a number; whatever else is among them is left alone.

    Raises
    ------
    ValueError
        If one is.
    """
    if not all(math.isfinite(one) for one in figures if isinstance(one, float)):
        raise ValueError(f"figures of {what} must be finite")


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure or a word with its name.

    Attributes
    ----------
    name, value
        What it is, and how much; None: it is not known, or there is none.
    kind
        What it is a figure of.
    """

    name: str
    value: Cell
    kind: Kind = "words"

    def __post_init__(self) -> None:
        check_names(self.name, *((self.value,) if isinstance(self.value, str) and self.value else ()))
        check_finite((self.value,), "a fact")


class TableColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of a table: its name, and what it holds."""

    name: str
    kind: Kind

    def __post_init__(self) -> None:
        check_names(self.name)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="table", tag_field="kind"):
    """More that was found, for people: rows of words and figures.

    Attributes
    ----------
    title
        What it is about: 1 to 256 printable characters.
    columns
        Their names, and what they hold.
    rows
        A cell for each column.
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        check_names(self.title)
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row must have a cell for each column")
        cells = [cell for row in self.rows for cell in row]
        check_finite(cells, "a table")
        check_names(*(cell for cell in cells if isinstance(cell, str)))

    @classmethod
    def of(cls, title: str, columns: dict[str, Kind], rows: tuple[tuple[Cell, ...], ...]) -> "Table":
        """Return a table; ``columns`` has the kind of each by its name."""
        return cls(title, tuple(TableColumn(name, kind) for name, kind in columns.items()), rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)
