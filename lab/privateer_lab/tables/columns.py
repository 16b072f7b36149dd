"""Columns that are filled from top to bottom, a block of rows at a time: numbers, values of features, categories."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError
from privateer_core.spec.features import Feature
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.marks import Texts, numbers_of, read_value

_VALUES_MAX: Final = 1000


class Unfit(Exception):
    """A value that a column does not hold; says which row and what is wrong, and never the value."""

    def __init__(self, wrong: NDArray[np.bool_], what: str, remedy: str) -> None:
        super().__init__(what)
        self.row, self.what, self.remedy = int(wrong.argmax()), what, remedy


class Column(ABC):
    """One column, filled from top to bottom, a block of rows at a time.

    optional: whether rows may have no value; NaN stands for it.
    """

    def __init__(self, name: str, *, optional: bool = False) -> None:
        self.name, self.optional = name, optional
        self._blocks: list[NDArray[Any]] = []

    @property
    def values(self) -> NDArray[Any]:
        """What was read, shape (n,)."""
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.empty(0)]
        return self._blocks[0]

    def add(self, texts: Texts, known: NDArray[np.bool_] | None = None, decimal: str = ".") -> None:
        """Append the next rows: the values of those that are ``known``, by default all, and gaps for the others."""
        values = self.read(texts, decimal)
        if known is not None and not known.all():
            filled = np.full(len(known), np.nan)
            filled[known] = values
            values = filled
        self._blocks.append(values)

    @abstractmethod
    def read(self, texts: Texts, decimal: str) -> NDArray[Any]:
        """Return the values of texts, shape (n,)."""


class Numbers(Column):
    """Finite numbers."""

    def read(self, texts: Texts, decimal: str) -> NDArray[np.float64]:
        """Return the numbers."""
        numbers = numbers_of(texts, decimal)
        if not np.isfinite(numbers).all():
            remedy = "correct it; or make the column 'column=value' features, or categories of population.project"
            raise Unfit(~np.isfinite(numbers), "is not a number", remedy)
        return numbers


class Values(Column):
    """A feature's values, as `privateer_core.spec.features.Feature.read` returns them.

    name: the column's name.
    feature: levels with or without an order, or yes or no; numbers are for `Numbers`.
    """

    def __init__(self, name: str, feature: Feature) -> None:
        super().__init__(name, optional=feature.missing)
        self._feature = feature

    def read(self, texts: Texts, decimal: str) -> NDArray[np.float64]:
        """Return places of levels, and 1 or 0 for yes or no."""
        encoded = texts.dictionary_encode()
        levels: list[str] = encoded.dictionary.to_pylist()
        each = np.array([self._number(text, decimal) for text in levels], np.float64)
        numbers: NDArray[np.float64] = each[np.asarray(encoded.indices)] if levels else each
        if np.isnan(numbers).any():
            raise Unfit(np.isnan(numbers), "is not a value of the feature", "correct it, or the feature in the spec")
        return numbers

    def _number(self, text: str, decimal: str) -> float:
        try:
            return read_value(self._feature, self.name, text, decimal)
        except InputError:
            return math.nan


class Categories(Column):
    """Names by their numbers.

    name: the column's name.
    known: names and numbers; several names may have the same number. Otherwise names are numbered in the order in which
        they first occur.
    most: most names that are not known.
    """

    def __init__(self, name: str, known: Mapping[str, int] | None = None, most: float = _VALUES_MAX) -> None:
        super().__init__(name)
        self._open, self._most = known is None, most
        self.names: dict[str, int] = dict(known or {})

    def read(self, texts: Texts, _decimal: str) -> NDArray[np.int32]:
        """Return the numbers of names."""
        encoded = texts.dictionary_encode()
        levels: list[str] = encoded.dictionary.to_pylist()
        for name in levels if self._open else ():
            self.names.setdefault(name, len(self.names))
        each = np.array([self.names.get(name, -1) for name in levels], np.int32)
        numbers: NDArray[np.int32] = each[np.asarray(encoded.indices)]
        if (numbers < 0).any():
            remedy = "correct it, or name its class in population.classes"
            raise Unfit(numbers < 0, "is not one of the classes", remedy)
        if self._open and (numbers >= self._most).any():
            what = f"makes more than {self._most:,} different values"
            raise Unfit(numbers >= self._most, what, "leave the column out")
        return numbers


class EncodedTexts(Column):
    """A column's texts, of which each is kept once; of all rows, or of some.

    rows: the rows that are kept, rising; None: all.
    """

    def __init__(self, name: str, rows: NDArray[np.int64] | None = None) -> None:
        super().__init__(name, optional=True)
        self._rows, self._n_seen, self._decimal = rows, 0, "."
        self._places_of: dict[str, int] = {}

    def column(self, *, by_row: bool = False) -> DataColumn:
        """Return what was kept; ``by_row`` if what a row's text is may not depend on other rows."""
        places = np.concatenate(self._blocks) if self._blocks else np.empty(0, np.int64)
        make = DataColumn if by_row else DataColumn.of
        return make(self.name, tuple(self._places_of), places, self._decimal)

    def add(self, texts: Texts, known: NDArray[np.bool_] | None = None, decimal: str = ".") -> None:
        """Keep the wanted ones of the next rows."""
        known = np.ones(len(texts), bool) if known is None else known
        rows = np.arange(len(known))
        if self._rows is not None:
            ends = np.searchsorted(self._rows, (self._n_seen, self._n_seen + len(known)))
            rows = self._rows[ends[0] : ends[1]] - self._n_seen
        self._n_seen += len(known)
        self._decimal = decimal
        has_value = known[rows]
        encoded = texts.take(np.cumsum(known)[rows[has_value]] - 1).dictionary_encode()
        each = [self._places_of.setdefault(text, len(self._places_of)) for text in encoded.dictionary.to_pylist()]
        places = np.full(len(rows), -1)
        places[has_value] = np.array(each, np.int64)[np.asarray(encoded.indices)]
        self._blocks.append(places)

    def read(self, _texts: Texts, _decimal: str) -> NDArray[Any]:
        """Return nothing: `add` keeps what there is."""
        return np.empty(0)
