"""Columns of a data frame or a CSV file in outline: which values there are, how many, and what they could be."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.columns import is_missing, is_number
from privateer_lab.environments.files.file_columns import NO, YES, Column, Texts, number_of
from privateer_lab.environments.files.people_file import PeopleFile

Value: TypeAlias = str | bool | float
_DISTINCT: Final = 10_000
"""Different values that are counted; beyond, only numbers go on."""


class Profile:
    """The profile of one column of a file.

    Attributes
    ----------
    name
        The column's name.
    rows, gaps
        Rows in all, and those without a value.
    counts
        How often each value occurs; None if there are too many values.
    """

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.gaps = name, 0, 0
        self.counts: Counter[Value] | None = Counter()
        self._numbers: list[NDArray[np.float64]] | None = []

    def add(self, values: Sequence[Value | None], times: Sequence[int] | None = None) -> None:
        """Count values, each so many times; None is a gap."""
        for value, count in zip(values, times or [1] * len(values), strict=True):
            self.rows += count
            if value is None:
                self.gaps += count
            elif self.counts is not None:
                self.counts[value] += count
        if self.counts is not None and len(self.counts) > _DISTINCT:
            self.counts = None
        self._add_numbers(values, times)

    def _add_numbers(self, values: Sequence[Value | None], times: Sequence[int] | None) -> None:
        known = [place for place, value in enumerate(values) if value is not None]
        if self._numbers is None or not all(is_number(values[place]) for place in known):
            self._numbers = None
            return
        found = np.array([values[place] for place in known], np.float64)
        self._numbers.append(found if times is None else np.repeat(found, [times[place] for place in known]))

    @property
    def numbers(self) -> NDArray[np.float64] | None:
        """All numbers; None if something else occurs, or nothing at all."""
        if self._numbers is None or self.gaps == self.rows:
            return None
        self._numbers = [np.concatenate(self._numbers)]
        return self._numbers[0]

    @property
    def is_boolean(self) -> bool:
        """Whether there is just yes and no, or just 1 and 0."""
        kinds = ({True, False}, set(YES + NO))
        return (
            self.counts is not None and len(self.counts) == 2 and any(set(map(_low, self.counts)) <= k for k in kinds)
        )

    @property
    def is_constant(self) -> bool:
        """Whether all rows that have a value have the same."""
        return self.counts is not None and len(self.counts) < 2


def _low(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def profiles_of(table: Any) -> list[Profile]:
    """Profile the columns of a pandas or polars data frame, a pyarrow table, or a mapping of names to values.

    Raises
    ------
    SpecError
        If it is none of these.
    """
    found = []
    for name, values in _columns(table):
        profile = Profile(str(name))
        profile.add([_value(value) for value in values])
        found.append(profile)
    return found


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


class _Profiled(Column):
    """A column of a file that is profiled while it is read, and not kept."""

    def __init__(self, name: str) -> None:
        super().__init__(name, optional=True)
        self.profile = Profile(name)

    def add(self, texts: Texts, known: NDArray[np.bool_] | None = None) -> None:
        """Profile the next rows."""
        encoded = texts.dictionary_encode()
        times = np.bincount(np.asarray(encoded.indices), minlength=len(encoded.dictionary)).tolist()
        gaps = 0 if known is None else int((~known).sum())
        self.profile.add([*map(_meant, encoded.dictionary.to_pylist()), None], [*times, gaps])

    def read(self, _texts: Texts) -> NDArray[Any]:
        """Return nothing."""
        return np.empty(0)


def _meant(text: str) -> Value:
    number = number_of(text)
    return number if math.isfinite(number) else text


def profiles_in(path: str) -> list[Profile]:
    """Profile the columns of CSV files.

    Raises
    ------
    SpecError
        As `PeopleFile`.
    """
    table = PeopleFile(path)
    columns = [_Profiled(name) for name in table.header]
    table.fill(columns, 0)
    return [column.profile for column in columns]
