"""A column in outline: which texts there are, how many, and what they could be."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_lab.tables import arrow, shortened
from privateer_lab.tables.marks import NO, YES, is_padded, numbers_of, outcome_of, read_value

Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class DataColumn:
    """The values of one column: each text once, and where it is."""

    name: str  # the column's name
    values: tuple[str, ...]  # the different texts, in the order in which they first occur
    places: Places  # shape (rows,): the place among them of each row's text; -1 where there is none
    decimal: str = "."  # the decimal sign of its numbers
    infinite: int = 0  # rows of a column of numbers whose number is infinite; they have no value

    @classmethod
    def of(cls, name: str, values: tuple[str, ...], places: Places, decimal: str = ".") -> Self:
        """Return a column, in which infinite ones among numbers are gaps."""
        column = cls(name, values, places, decimal)
        is_infinite = np.isinf(column.quantities)
        if not is_infinite.any() or np.isnan(column.quantities).any():
            return column
        rows = is_infinite[places] & (places >= 0)
        return cls(name, values, np.where(rows, -1, places), decimal, int(rows.sum()))

    @property
    def rows(self) -> int:
        """Rows in all."""
        return len(self.places)

    @cached_property
    def gaps(self) -> int:
        """Rows without a value."""
        return int((self.places < 0).sum())

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each text occurs."""
        times = np.bincount(self.places[self.places >= 0], minlength=len(self.values)).tolist()
        return Counter({value: count for value, count in zip(self.values, times, strict=True) if count})

    @cached_property
    def quantities(self) -> NDArray[np.float64]:
        """The number that each text of ``values`` writes, (values,); NaN where it writes none."""
        return numbers_of(arrow().array(self.values, arrow().string()), self.decimal)

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """All numbers in their order; None if something else occurs, codes such as 007, or nothing at all."""
        if not self.counts or any(map(is_padded, self.counts)):
            return None
        each = self.quantities[self.places[self.places >= 0]]
        return None if np.isnan(each).any() else each

    @cached_property
    def is_boolean(self) -> bool:
        """Whether there is just yes and no, or just 1 and 0."""
        if len(self.counts) == 2 and {text.lower() for text in self.counts} <= set(YES + NO):
            return True
        return self.numbers is not None and np.array_equal(np.unique(self.numbers), [0, 1])

    @property
    def is_constant(self) -> bool:
        """Whether all rows that have a value have the same."""
        return len(self.counts) < 2

    @cached_property
    def outcomes(self) -> NDArray[np.float64]:
        """Each row's number, or 1 and 0 for yes and no, (rows,); NaN where there is none."""
        each = np.array([outcome_of(text, self.decimal) for text in self.values], np.float64)
        return np.append(np.where(np.isfinite(each), each, np.nan), np.nan)[self.places]

    @property
    def texts(self) -> NDArray[Any]:
        """Each row's text, (rows,); None where there is none."""
        return np.array([*self.values, None], dtype=object)[self.places]

    def read_as(self, feature: Feature) -> NDArray[np.float64]:
        """Return each row's value as a device reads it, (rows,); NaN where there is none."""
        each = self.quantities
        if not isinstance(feature, Numeric | Ranked):
            each = np.array([self._value(feature, text) for text in self.values], np.float64)
        values = np.append(each, np.nan)[self.places]
        if np.isnan(values[self.places >= 0]).any():
            detail = "has a value that the feature cannot have"
            raise SpecError(detail, field=shortened(self.name), remedy="leave such rows out, or the column")
        return values

    def _value(self, feature: Feature, text: str) -> float:
        try:
            return read_value(feature, self.name, text, self.decimal)
        except InputError:
            return math.nan

    def of_rows(self, rows: NDArray[Any]) -> Self:
        """Return some of the rows."""
        return type(self)(self.name, self.values, self.places[rows], self.decimal)
