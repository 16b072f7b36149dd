"""Columns of a CSV file in memory, as small as they can be."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Texts: TypeAlias = Any
"""A ``pyarrow.StringArray``; pyarrow is imported only where CSV files are read."""
_VALUES_MAX: Final = 1000


class Unfit(Exception):
    """A value that a column does not hold; says which row and what is wrong, and never the value."""

    def __init__(self, wrong: NDArray[np.bool_], what: str, remedy: str) -> None:
        super().__init__(what)
        self.row, self.what, self.remedy = int(wrong.argmax()), what, remedy


class Column(ABC):
    """One column, filled from top to bottom, a block of rows at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._blocks: list[NDArray[Any]] = []

    @property
    def values(self) -> NDArray[Any]:
        """What was read, shape (n,)."""
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.empty(0)]
        return self._blocks[0]

    def add(self, texts: Texts) -> None:
        """Append the values of the next rows.

        Raises
        ------
        Unfit
            If one is not what the column holds; its row counts from the first of ``texts``.
        """
        self._blocks.append(self.read(texts))

    @abstractmethod
    def read(self, texts: Texts) -> NDArray[Any]:
        """Return the values of texts, shape (n,)."""


class Numbers(Column):
    """Finite numbers."""

    def read(self, texts: Texts) -> NDArray[np.float64]:
        """Return the numbers."""
        import pyarrow as pa

        try:
            numbers = np.asarray(texts.cast(pa.float64()))
        except pa.ArrowInvalid:  # which of them it does not say; and it does not know "+5"
            numbers = np.array([_number(text) for text in texts.to_pylist()])
        if not np.isfinite(numbers).all():
            remedy = "correct it; or make the column 'column=value' features, or categories of population.project"
            raise Unfit(~np.isfinite(numbers), "is not a number", remedy)
        return numbers


def _number(text: str) -> float:
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


class Categories(Column):
    """Names by their numbers.

    Parameters
    ----------
    name
        The column's name.
    known
        Names and numbers; several names may have the same number. Otherwise names are numbered in the order in which
        they first occur.
    """

    def __init__(self, name: str, known: Mapping[str, int] | None = None) -> None:
        super().__init__(name)
        self._open = known is None
        self.names: dict[str, int] = dict(known or {})

    def read(self, texts: Texts) -> NDArray[np.int32]:
        """Return the numbers of names."""
        encoded = texts.dictionary_encode()
        found: list[str] = encoded.dictionary.to_pylist()
        for name in found if self._open else ():
            self.names.setdefault(name, len(self.names))
        each = np.array([self.names.get(name, -1) for name in found], np.int32)
        numbers: NDArray[np.int32] = each[np.asarray(encoded.indices)]
        if (numbers < 0).any():
            remedy = "correct it, or name its class in population.classes"
            raise Unfit(numbers < 0, "is not one of the classes", remedy)
        if self._open and (numbers >= _VALUES_MAX).any():
            what = f"makes more than {_VALUES_MAX:,} different values"
            raise Unfit(numbers >= _VALUES_MAX, what, "leave the column out")
        return numbers
