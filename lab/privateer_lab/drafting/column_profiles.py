"""Columns of a data frame or a file in outline: which values there are, how many, and what they could be.

Of many rows a sample is kept, so that memory does not grow with the file.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.columns import is_missing, is_number
from privateer_lab.environments.files.file_columns import NO, YES, Column, Texts, number_of
from privateer_lab.environments.files.people_file import PeopleFile

Value: TypeAlias = str | bool | float
Places: TypeAlias = NDArray[np.int64]
SAMPLE: Final = 100_000
"""Most rows that are kept of a table."""
_SEED: Final = 0


@dataclass(frozen=True)
class Profile:
    """The values of one column."""

    name: str  # the column's name
    values: tuple[Value, ...]  # the different values, in the order in which they first occur
    places: Places  # shape (rows,): the place among them of each row's value; -1 where there is none

    @property
    def rows(self) -> int:
        """Rows in all."""
        return len(self.places)

    @cached_property
    def gaps(self) -> int:
        """Rows without a value."""
        return int((self.places < 0).sum())

    @cached_property
    def counts(self) -> Counter[Value]:
        """How often each value occurs."""
        times = np.bincount(self.places[self.places >= 0], minlength=len(self.values))
        return Counter({value: int(count) for value, count in zip(self.values, times, strict=True) if count})

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """All numbers in their order; None if something else occurs, or nothing at all."""
        if not self.counts or not all(map(is_number, self.counts)):
            return None
        each = np.array([float(one) if is_number(one) else math.nan for one in self.values])
        return np.asarray(each[self.places[self.places >= 0]])

    @property
    def is_boolean(self) -> bool:
        """Whether there is just yes and no, or just 1 and 0."""
        kinds = ({True, False}, set(YES + NO))
        return len(self.counts) == 2 and any(set(map(_low, self.counts)) <= kind for kind in kinds)

    @property
    def is_constant(self) -> bool:
        """Whether all rows that have a value have the same."""
        return len(self.counts) < 2

    def of(self, rows: NDArray[Any]) -> Self:
        """Return the profile of some of the rows."""
        return type(self)(self.name, self.values, self.places[rows])


def _low(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


@dataclass(frozen=True)
class TableRows:
    """Rows of a table: all of them, or a sample."""

    columns: Mapping[str, Profile]  # by name
    total: int  # rows of the table that they stand for

    @property
    def kept(self) -> int:
        """Rows that are here."""
        return next(iter(self.columns.values())).rows

    def column(self, name: str) -> Profile:
        """Return a column."""
        if name not in self.columns:
            there = ", ".join(shortened(one) for one in list(self.columns)[:_NAMED])
            raise SpecError("no column has this name", field=shortened(name), remedy=f"choose from {there}")
        return self.columns[name]

    def of(self, rows: NDArray[Any]) -> Self:
        """Return the rows that a mask marks; they stand for as large a share of the table."""
        total = round(self.total * float(rows.mean()))
        return type(self)({name: one.of(rows) for name, one in self.columns.items()}, total)


_NAMED: Final = 12
_LETTERS: Final = 60


def shortened(text: str) -> str:
    """Return a name from a file as messages have it: of a few dozen letters."""
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."


def rows_of(table: Any, *, most: int = SAMPLE) -> TableRows:
    """Return the rows of a table, or a random sample of so many.

    Parameters
    ----------
    table
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file.
    """
    found = _in_file(str(table), most) if isinstance(table, str | Path) else _in_frame(table, most)
    if not found.total:
        raise SpecError("has no rows", field="table", remedy="give a table with a row for each person")
    return found


def _chosen(total: int, most: int) -> Places:
    """Return the rows that are kept, rising."""
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(_SEED).choice(total, most, replace=False, shuffle=False))


def _in_frame(table: Any, most: int) -> TableRows:
    columns: dict[str, Profile] = {}
    total: int | None = None
    for name, values in _columns(table):
        if total is not None and total != len(values):
            raise SpecError("its columns must have one length", field="table", remedy="give a value for each row")
        total = len(values)
        known: dict[Value, int] = {}
        rows = [_value(values[row]) for row in _chosen(total, most)]
        places = [-1 if one is None else known.setdefault(one, len(known)) for one in rows]
        columns[str(name)] = Profile(str(name), tuple(known), np.array(places, np.int64))
    return TableRows(columns, total or 0)


def _columns(table: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield names and values; whatever the library, its own lists are Python's."""
    if isinstance(table, Mapping):
        names = list(table)
    else:
        names = list(getattr(table, "column_names", getattr(table, "columns", [])))
    if not names:
        remedy = "give a data frame, a pyarrow table, or a dict of columns"
        raise SpecError("no columns", field="table", remedy=remedy)
    for name in names:
        column = table[name]
        as_list = getattr(column, "to_pylist", getattr(column, "tolist", getattr(column, "to_list", None)))
        yield name, list(as_list() if as_list else column)


def _value(value: Any) -> Value | None:
    if is_missing(value):
        return None
    if isinstance(value, np.bool_):
        return bool(value)
    return value if isinstance(value, str | bool) else float(value) if is_number(value) else str(value)


class _Sampled(Column):
    """A column of a file of which some rows are kept.

    Parameters
    ----------
    chosen
        The rows, rising.
    """

    def __init__(self, name: str, chosen: Places) -> None:
        super().__init__(name, optional=True)
        self._chosen, self._seen, self._known = chosen, 0, dict[Value, int]()
        self._places: list[Places] = []

    @property
    def profile(self) -> Profile:
        """What was kept."""
        places = np.concatenate(self._places) if self._places else np.empty(0, np.int64)
        return Profile(self.name, tuple(self._known), places)

    def add(self, texts: Texts, known: NDArray[np.bool_] | None = None) -> None:
        """Keep the chosen ones of the next rows."""
        known = np.ones(len(texts), bool) if known is None else known
        here = np.searchsorted(self._chosen, (self._seen, self._seen + len(known)))
        rows = self._chosen[here[0] : here[1]] - self._seen
        self._seen += len(known)
        kept = known[rows]
        encoded = texts.take(np.cumsum(known)[rows[kept]] - 1).dictionary_encode()
        meant = [self._known.setdefault(_meant(one), len(self._known)) for one in encoded.dictionary.to_pylist()]
        places = np.full(len(rows), -1)
        places[kept] = np.array(meant, np.int64)[np.asarray(encoded.indices)]
        self._places.append(places)

    def read(self, _texts: Texts) -> NDArray[Any]:
        """Return nothing: `add` keeps what there is."""
        return np.empty(0)


def _meant(text: str) -> Value:
    number = number_of(text)
    return number if math.isfinite(number) else text


def _in_file(path: str, most: int) -> TableRows:
    try:
        table = PeopleFile(path)
        chosen = _chosen(table.rows, most)
        columns = [_Sampled(name, chosen) for name in table.header]
        table.fill(columns, 0, kept=len(chosen))
    except SpecError as error:  # no spec names the file yet
        raise SpecError(error.detail, field="table", remedy=error.remedy) from None
    return TableRows({one.name: one.profile for one in columns}, table.rows)
