"""Columns of a CSV file in memory, as small as they can be."""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from privateer.errors import SpecError

_VALUES_MAX: Final = 1000


class Unfit(Exception):
    """A value that a column does not hold; says what that is and what to do, and never the value."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


class Column(Protocol):
    """One column, filled from top to bottom."""

    name: str
    bytes_per_row: int

    def add(self, text: str) -> None:
        """Append a value.

        Raises
        ------
        Unfit
            If it is not what the column holds.
        """
        ...


class Numbers:
    """Finite numbers."""

    bytes_per_row = 8

    def __init__(self, name: str) -> None:
        self.name = name
        self._values = array("d")

    def add(self, text: str) -> None:
        """Append a number."""
        try:
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            remedy = "correct it; or make the column 'column=value' features, or categories of population.project"
            raise Unfit("is not a number", remedy)
        self._values.append(value)

    @property
    def values(self) -> NDArray[np.float64]:
        """Shape (n,)."""
        return np.frombuffer(self._values, dtype=np.float64)


class Categories:
    """Names, numbered in the order in which they first occur."""

    bytes_per_row = 4

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: dict[str, int] = {}
        self._codes = array("i")

    def add(self, text: str) -> None:
        """Append a name."""
        code = self.names.setdefault(text, len(self.names))
        if code >= _VALUES_MAX:
            raise Unfit(f"makes more than {_VALUES_MAX:,} different values", "leave the column out")
        self._codes.append(code)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Shape (n,)."""
        return np.frombuffer(self._codes, dtype=np.int32)


class Classes:
    """Names that are known before.

    Parameters
    ----------
    name
        Of the column.
    classes
        Its names; ``also`` are other spellings, by name.
    """

    bytes_per_row = 4

    def __init__(self, name: str, classes: Sequence[str], also: Mapping[str, str] | None = None) -> None:
        self.name, self.classes = name, tuple(classes)
        self._numbers = {one: number for number, one in enumerate(classes)}
        self._numbers |= {spelling: self._numbers[one] for spelling, one in (also or {}).items()}
        self._codes = array("i")

    def add(self, text: str) -> None:
        """Append a name."""
        code = self._numbers.get(text)
        if code is None:
            raise Unfit("is none of the classes", "correct it, or name its class in population.classes")
        self._codes.append(code)

    def check(self, field: str) -> None:
        """Refuse a file in which a class never occurs, or which is empty.

        Raises
        ------
        SpecError
            Naming the class.
        """
        counts = np.bincount(self.codes, minlength=len(self.classes))
        if not counts.all():
            message = f"no row of the file is of class {self.classes[int(np.argmin(counts))]!r}"
            raise SpecError(message, field=field, remedy="correct its spelling, or give population.classes")

    @property
    def codes(self) -> NDArray[np.int32]:
        """Shape (n,)."""
        return np.frombuffer(self._codes, dtype=np.int32)
