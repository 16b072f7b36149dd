"""Facts, conditions on features, tables with typed columns, and checks of displayed values."""

import math
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

NAME_MAX: Final = 256
"""Maximum number of characters of a name or a sentence that a server sends."""
Cell: TypeAlias = str | bool | int | float | None
Kind: TypeAlias = Literal[
    "words", "yes or no", "number", "count", "share", "probability", "reward", "difference", "time", "low", "high"
]
"""The type of a figure: `low` and `high` are the ends of the interval of the previous column."""
Level: TypeAlias = str | bool | int | float
"""A value of a feature."""


class Displayed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value for screens: its words are short and printable, its figures finite.

    Attributes
    ----------
    may_be_empty
        Names of the fields that may be empty words.
    longest
        Maximum number of characters of a word.

    Raises
    ------
    ValueError
        If a word is empty or longer than that, or has characters that control a terminal; or if a figure is
        infinite or not a number.
    """

    may_be_empty: ClassVar[frozenset[str]] = frozenset()
    longest: ClassVar[int] = NAME_MAX

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value != "" or name not in self.may_be_empty:
                _check(value, self.longest)


def _check(value: object, longest: int) -> None:
    """Refuse unprintable words and infinite figures, in tuples and mappings, too."""
    if isinstance(value, str):
        if not (0 < len(value) <= longest and value.isprintable()):
            raise ValueError(f"a name must have 1 to {longest} printable characters")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("figures must be finite")
    elif isinstance(value, tuple | dict):
        for element in value:
            _check(element, longest)
        for element in value.values() if isinstance(value, dict) else ():
            _check(element, longest)


class Fact(Displayed, frozen=True):
    """A figure or a word with its name.

    Attributes
    ----------
    name, value
        The name and the value; None: unknown, or there is none.
    kind
        The type of the figure.
    """

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"value"})

    name: str
    value: Cell
    kind: Kind = "words"


class TableColumn(Displayed, frozen=True):
    """A column of a table: its name, and the type of its cells."""

    name: str
    kind: Kind


class Table(Displayed, frozen=True, tag="table", tag_field="kind"):
    """A table of further results: rows of words and figures.

    Attributes
    ----------
    title
        1 to 256 printable characters.
    columns
        Names and types of the columns.
    rows
        A cell for each column.
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row must have a cell for each column")

    @classmethod
    def of(cls, title: str, columns: dict[str, Kind], rows: tuple[tuple[Cell, ...], ...]) -> "Table":
        """Return a table; ``columns`` has the kind of each by its name."""
        return cls(title, tuple(TableColumn(name, kind) for name, kind in columns.items()), rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)


class Between(Displayed, frozen=True, tag="between", tag_field="kind"):
    """People whose number is in an interval.

    Attributes
    ----------
    feature
        The name of the feature.
    low, high
        The ends, in the units of the feature.
    missing
        Whether people without a value are among them.
    """

    feature: str
    low: float
    high: float
    missing: bool = False


class Among(Displayed, frozen=True, tag="among", tag_field="kind"):
    """People who have one of several values.

    Attributes
    ----------
    feature
        The name of the feature.
    values
        The values, in the spec's order; empty if all these people have none.
    missing
        Whether people without a value are among them.
    """

    feature: str
    values: tuple[Level, ...]
    missing: bool = False


Condition: TypeAlias = Between | Among


class Bin(Displayed, frozen=True):
    """A box of contexts.

    Attributes
    ----------
    lower, upper
        Its corners, along the columns of an encoded context, from 0 to 1.
    where
        A condition on each feature that it restricts; empty: all people.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    where: tuple[Condition, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.lower) != len(self.upper):
            raise ValueError("the corners of a bin must have as many columns")
