"""Columns of a table: texts as gaps, yes or no, and numbers, read on request or while rows come in blocks."""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_lab.tables import import_pyarrow, shorten

Texts: TypeAlias = Any
"""A ``pyarrow.StringArray``."""
Array: TypeAlias = NDArray[np.float64]
GAPS: Final = (
    *("", "?", ".", "-", "--", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"),
    *("missing", "Missing", "MISSING"),
)
"""Texts of missing values, with case: ``none`` is an ordinary word, and pandas writes ``None``."""
_GROUP_DIGITS: Final = 3
"""Digits of a group of thousands."""
YES: Final = ("true", "yes", "t", "y")
NO: Final = ("false", "no", "f", "n")
_CURRENCY: Final = r"(?:[$€£¥₹%]|USD|EUR|GBP|CHF)?"
_AMOUNT: Final = re.compile(rf"([+-]?)\s*{_CURRENCY}\s*([+-]?)((?:\d|[.,]\d).*?)\s*{_CURRENCY}")
_GROUPED: Final = re.compile(r"\d{1,3}([,'’ \u00a0\u202f])\d{3}(?:\1\d{3})*(?:\.\d*)?")
_WITH_COMMA: Final = re.compile(r"(?:\d{1,3}(?:[.'’ \u00a0\u202f]\d{3})+|\d*)(?:,\d+)?")
_COMMA_POINT_SWAP: Final = str.maketrans(",.", ".,")
_PADDED: Final = re.compile(r"[+-]?0\d")
_COMMA_DECIMAL: Final = re.compile(r"\D{0,4}(?:\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3})+,\d+)\D{0,4}")
_POINT_DECIMAL: Final = re.compile(r"\D{0,4}(?:\d*\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3})+\.\d+)\D{0,4}")
_AMBIGUOUS_COMMA: Final = re.compile(r"\D{0,4}\d+,\d{3}\D{0,4}")
_THOUSANDS_POINTS: Final = re.compile(r"\D{0,4}[1-9]\d{0,2}(\.\d{3})+\D{0,4}")
_WHOLE_NUMBER: Final = re.compile(r"\D{0,4}\d+\D{0,4}")


def find_gaps(texts: Texts, extra_gaps: Collection[str] = ()) -> NDArray[np.bool_]:
    """Return the mask of texts that are missing values, (n,)."""
    pa = import_pyarrow()
    return np.asarray(pa.compute.is_in(texts, value_set=pa.array([*GAPS, *extra_gaps])))


def has_decimal_point(cell: str) -> bool:
    """Whether a point in a text is certainly a decimal sign."""
    return bool(_POINT_DECIMAL.fullmatch(cell))


def has_grouping_points(cells: Collection[str]) -> bool:
    """Whether points of a column's numbers separate thousands: only numbers from 1,000 on have a point."""
    with_points = [cell for cell in cells if "." in cell]
    whole_numbers = [cell for cell in cells if _WHOLE_NUMBER.fullmatch(cell)]
    if not with_points or not all(_THOUSANDS_POINTS.fullmatch(cell) for cell in with_points):
        return False
    is_split = bool(whole_numbers) and all(sum(map(str.isdigit, cell)) < _GROUP_DIGITS + 1 for cell in whole_numbers)
    return is_split or any(cell.count(".") > 1 for cell in with_points)


def detect_decimal(cells: Collection[str], *, is_comma_free: bool) -> str:
    """Detect a file's decimal sign by a sample of cells: more likely a comma where values are not separated by one."""
    if any(map(has_decimal_point, cells)):
        return "."
    with_comma = any(_COMMA_DECIMAL.fullmatch(cell) for cell in cells)
    return "," if with_comma or (is_comma_free and any(_AMBIGUOUS_COMMA.fullmatch(cell) for cell in cells)) else "."


def parse_number(text: str, decimal: str = ".") -> float:
    """Parse a number, with a sign of currency or thousands' separators; NaN if the text is no number."""
    if decimal == "." or "." not in text:
        try:
            return math.nan if "_" in text else float(text.replace(decimal, "."))
        except ValueError:
            pass
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        return math.nan
    digits = amount[3]
    if decimal == "," and _WITH_COMMA.fullmatch(digits):
        digits = digits.translate(_COMMA_POINT_SWAP)
    if grouped := _GROUPED.fullmatch(digits):
        digits = digits.replace(grouped[1], "")
    try:
        return math.nan if "_" in digits else float(amount[1] + amount[2] + digits)
    except ValueError:
        return math.nan


def parse_numbers(texts: Texts, decimal: str = ".") -> Array:
    """Parse numbers, (n,); NaN where a text is no number."""
    pa = import_pyarrow()
    plain = texts
    if decimal == ",":
        has_points = pa.compute.any(pa.compute.match_substring(texts, ".")).as_py()
        plain = None if has_points else pa.compute.replace_substring(texts, ",", ".")
    try:
        if plain is not None:
            return np.asarray(plain.cast(pa.float64()), np.float64)
    except pa.ArrowInvalid:  # which does not name the text, and does not know "+5"
        pass
    return np.array([parse_number(text, decimal) for text in texts.to_pylist()], np.float64)


def is_padded(text: str) -> bool:
    """Whether a text is a number with a leading zero, as a code such as 007."""
    return bool(_PADDED.match(text))


def sort_names(texts: Iterable[str]) -> list[str]:
    """Sort names, as numbers if all are numbers, and as texts otherwise."""
    numbers = {text: math.nan if is_padded(text) else parse_number(text) for text in texts}
    if any(map(math.isnan, numbers.values())):
        return sorted(numbers)
    return sorted(numbers, key=lambda text: (numbers[text], text))


def parse_outcome(text: str, decimal: str = ".") -> float:
    """Parse a number, or 1 and 0 for yes and no; NaN for other texts."""
    number = parse_number(text, decimal)
    if math.isnan(number) and text.lower() in YES + NO:
        return float(text.lower() in YES)
    return number


def read_value(feature: Feature, name: str, text: str, decimal: str = ".") -> float:
    """Read a text as a feature's value, as a device does: a level, a number, or yes or no; NaN if it is no value."""
    meanings: list[str | float | bool] = [text]
    number = parse_number(text, decimal)
    if math.isfinite(number):
        meanings.append(int(number) if number == int(number) else number)
    if text.lower() in YES + NO:
        meanings.append(text.lower() in YES)
    for meaning in meanings:
        with suppress(InputError):
            return feature.read(name, meaning)
    return math.nan


Codes: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class DataColumn:
    """A dictionary-encoded column of texts."""

    name: str  # the column's name
    values: tuple[str, ...]  # the distinct texts, by first occurrence
    codes: Codes  # shape (rows,): the index of each row's text in ``values``; -1 where it is missing
    decimal: str = "."  # the decimal sign of its numbers
    infinite: int = 0  # rows of a column of numbers whose number is infinite; they have no value

    @classmethod
    def from_codes(cls, name: str, values: tuple[str, ...], codes: Codes, decimal: str = ".") -> Self:
        """Make a column, in which infinite numbers count as missing."""
        column = cls(name, values, codes, decimal)
        is_infinite = np.isinf(column.quantities)
        if not is_infinite.any() or np.isnan(column.quantities).any():
            return column
        rows = is_infinite[codes] & (codes >= 0)
        return cls(name, values, np.where(rows, -1, codes), decimal, int(rows.sum()))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.codes)

    @cached_property
    def gaps(self) -> int:
        """The number of rows without a value."""
        return int((self.codes < 0).sum())

    @cached_property
    def counts(self) -> Counter[str]:
        """The number of rows of each text."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).tolist()
        return Counter({value: count for value, count in zip(self.values, counts, strict=True) if count})

    @cached_property
    def quantities(self) -> NDArray[np.float64]:
        """The numbers of ``values``, (values,); NaN for other texts."""
        return parse_numbers(import_pyarrow().array(self.values, import_pyarrow().string()), self.decimal)

    @cached_property
    def numbers(self) -> NDArray[np.float64] | None:
        """The numbers of all rows with a value; None if there are other texts, codes such as 007, or no values."""
        if not self.counts or any(map(is_padded, self.counts)):
            return None
        numbers = self.quantities[self.codes[self.codes >= 0]]
        return None if np.isnan(numbers).any() else numbers

    @cached_property
    def is_boolean(self) -> bool:
        """Whether the values are yes and no, or 1 and 0."""
        if len(self.counts) == 2 and {text.lower() for text in self.counts} <= set(YES + NO):
            return True
        return self.numbers is not None and np.array_equal(np.unique(self.numbers), [0, 1])

    @property
    def is_constant(self) -> bool:
        """Whether all rows with a value have the same value."""
        return len(self.counts) < 2

    @cached_property
    def outcomes(self) -> NDArray[np.float64]:
        """Each row's number, or 1 and 0 for yes and no, (rows,); NaN elsewhere."""
        outcome_by_code = np.array([parse_outcome(text, self.decimal) for text in self.values], np.float64)
        return np.append(np.where(np.isfinite(outcome_by_code), outcome_by_code, np.nan), np.nan)[self.codes]

    @property
    def texts(self) -> NDArray[Any]:
        """Each row's text, (rows,); None where it is missing."""
        return np.array([*self.values, None], dtype=object)[self.codes]

    def read_as(self, feature: Feature) -> NDArray[np.float64]:
        """Read each row's value as a device does, (rows,); NaN where it is missing; refuse an impossible value."""
        value_by_code = self.quantities
        if not isinstance(feature, Numeric | Ranked):
            numbers = [read_value(feature, self.name, text, self.decimal) for text in self.values]
            value_by_code = np.array(numbers, np.float64)
        values = np.append(value_by_code, np.nan)[self.codes]
        if np.isnan(values[self.codes >= 0]).any():
            detail = "has a value that the feature cannot have"
            raise SpecError(detail, field=shorten(self.name), remedy="leave such rows out, or the column")
        return values

    def select_rows(self, rows: NDArray[Any]) -> Self:
        """Return a subset of the rows."""
        return type(self)(self.name, self.values, self.codes[rows], self.decimal)


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
            remedy = "correct it; or make the column 'column=value' features"
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
