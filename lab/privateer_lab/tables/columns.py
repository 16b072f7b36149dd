"""Columns that are filled from top to bottom, a block of rows at a time: numbers, values of features, categories."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.features import Feature
from privateer_lab.tables.data_column import DataColumn, Texts, parse_numbers, read_value

_VALUES_MAX: Final = 1000


class InvalidCellError(Exception):
    """The error of an invalid cell, with row and problem, but never the value."""

    def __init__(self, is_wrong: NDArray[np.bool_], detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.row, self.detail, self.remedy = int(is_wrong.argmax()), detail, remedy


class Column(ABC):
    """One column, filled from top to bottom in blocks of rows; optional values may be missing, as NaN."""

    def __init__(self, name: str, *, optional: bool = False) -> None:
        self.name, self.optional = name, optional
        self._blocks: list[NDArray[Any]] = []

    @property
    def values(self) -> NDArray[Any]:
        """The values so far, shape (n,)."""
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.empty(0)]
        return self._blocks[0]

    def add(self, texts: Texts, has_value: NDArray[np.bool_] | None = None, decimal: str = ".") -> None:
        """Append rows: values where ``has_value``, by default in all rows, and gaps elsewhere."""
        values = self.read(texts, decimal)
        if has_value is not None and not has_value.all():
            filled = np.full(len(has_value), np.nan)
            filled[has_value] = values
            values = filled
        self._blocks.append(values)

    @abstractmethod
    def read(self, texts: Texts, decimal: str) -> NDArray[Any]:
        """Return the values of texts, shape (n,)."""


class Numbers(Column):
    """Finite numbers."""

    def read(self, texts: Texts, decimal: str) -> NDArray[np.float64]:
        """Return the numbers; `InvalidCellError` if a cell is none."""
        numbers = parse_numbers(texts, decimal)
        if not np.isfinite(numbers).all():
            remedy = "correct it; or make the column 'column=value' features, or categories of population.project"
            raise InvalidCellError(~np.isfinite(numbers), "is not a number", remedy)
        return numbers


class Values(Column):
    """A feature's values as `Feature.read` returns them, by level or yes and no; `Numbers` has numbers."""

    def __init__(self, name: str, feature: Feature) -> None:
        super().__init__(name, optional=feature.missing)
        self._feature = feature

    def read(self, texts: Texts, decimal: str) -> NDArray[np.float64]:
        """Return indices of levels, and 1 or 0 for yes or no; `InvalidCellError` for another value."""
        encoded = texts.dictionary_encode()
        levels: list[str] = encoded.dictionary.to_pylist()
        number_by_level = np.array([read_value(self._feature, self.name, text, decimal) for text in levels], np.float64)
        numbers: NDArray[np.float64] = number_by_level[np.asarray(encoded.indices)] if levels else number_by_level
        if np.isnan(numbers).any():
            remedy = "correct it, or the feature in the spec"
            raise InvalidCellError(np.isnan(numbers), "is not a value of the feature", remedy)
        return numbers


class Categories(Column):
    """Categories, numbered.

    ``numbers_by_name`` may have equal numbers. Without it, names are numbered in the order in which they
    first occur, up to ``max_names``.
    """

    def __init__(
        self, name: str, numbers_by_name: Mapping[str, int] | None = None, max_names: float = _VALUES_MAX
    ) -> None:
        super().__init__(name)
        self._is_open, self._max_names = numbers_by_name is None, max_names
        self.names: dict[str, int] = dict(numbers_by_name or {})

    def read(self, texts: Texts, _decimal: str) -> NDArray[np.int32]:
        """Return the numbers of names; `InvalidCellError` for an unknown name, or too many."""
        encoded = texts.dictionary_encode()
        levels: list[str] = encoded.dictionary.to_pylist()
        for name in levels if self._is_open else ():
            self.names.setdefault(name, len(self.names))
        number_by_level = np.array([self.names.get(name, -1) for name in levels], np.int32)
        numbers: NDArray[np.int32] = number_by_level[np.asarray(encoded.indices)]
        if (numbers < 0).any():
            remedy = "correct it, or name its class in population.classes"
            raise InvalidCellError(numbers < 0, "is not one of the classes", remedy)
        if self._is_open and (numbers >= self._max_names).any():
            detail = f"makes more than {self._max_names:,} different values"
            raise InvalidCellError(numbers >= self._max_names, detail, "leave the column out")
        return numbers


class EncodedTexts(Column):
    """A dictionary-encoded column of texts, of all rows, or of rising ``rows``."""

    def __init__(self, name: str, rows: NDArray[np.int64] | None = None) -> None:
        super().__init__(name, optional=True)
        self._rows, self._n_seen, self._decimal = rows, 0, "."
        self._codes: dict[str, int] = {}

    def build_column(self, *, by_row: bool = False) -> DataColumn:
        """Build the column; ``by_row`` if a row's value must not depend on other rows."""
        codes = np.concatenate(self._blocks) if self._blocks else np.empty(0, np.int64)
        build = DataColumn if by_row else DataColumn.from_codes
        return build(self.name, tuple(self._codes), codes, self._decimal)

    def add(self, texts: Texts, has_text: NDArray[np.bool_] | None = None, decimal: str = ".") -> None:
        """Append the selected ones of the next rows."""
        has_text = np.ones(len(texts), bool) if has_text is None else has_text
        rows = np.arange(len(has_text))
        if self._rows is not None:
            ends = np.searchsorted(self._rows, (self._n_seen, self._n_seen + len(has_text)))
            rows = self._rows[ends[0] : ends[1]] - self._n_seen
        self._n_seen += len(has_text)
        self._decimal = decimal
        row_has_value = has_text[rows]
        encoded = texts.take(np.cumsum(has_text)[rows[row_has_value]] - 1).dictionary_encode()
        new_codes = [self._codes.setdefault(text, len(self._codes)) for text in encoded.dictionary.to_pylist()]
        places = np.full(len(rows), -1)
        places[row_has_value] = np.array(new_codes, np.int64)[np.asarray(encoded.indices)]
        self._blocks.append(places)

    def read(self, _texts: Texts, _decimal: str) -> NDArray[Any]:
        """Return an empty array, since `add` keeps the texts."""
        return np.empty(0)
