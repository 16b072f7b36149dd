"""What a text of a table may mean: no value, yes or no, a number. Texts stay texts unless one of these is asked for."""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError
from privateer_core.spec.features import Feature
from privateer_lab.tables import arrow

Texts: TypeAlias = Any
"""A ``pyarrow.StringArray``."""
Array: TypeAlias = NDArray[np.float64]
GAPS: Final = (
    *("", "?", ".", "-", "--", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "NaT", "NULL", "null", "None"),
    *("missing", "Missing", "MISSING"),
)
"""Texts that stand for no value. Case decides: ``none`` is a word like others, and pandas writes ``None``."""
_GROUP: Final = 3
"""Digits of a group of thousands."""
YES: Final = ("true", "yes", "t", "y")
NO: Final = ("false", "no", "f", "n")
_CURRENCY: Final = r"(?:[$€£¥₹%]|USD|EUR|GBP|CHF)?"
_AMOUNT: Final = re.compile(rf"([+-]?)\s*{_CURRENCY}\s*([+-]?)((?:\d|[.,]\d).*?)\s*{_CURRENCY}")
_GROUPED: Final = re.compile(r"\d{1,3}([,'’ \u00a0\u202f])\d{3}(?:\1\d{3})*(?:\.\d*)?")
_WITH_COMMA: Final = re.compile(r"(?:\d{1,3}(?:[.'’ \u00a0\u202f]\d{3})+|\d*)(?:,\d+)?")
_SWAP: Final = str.maketrans(",.", ".,")
_PADDED: Final = re.compile(r"[+-]?0\d")
_COMMA_DECIMAL: Final = re.compile(r"\D{0,4}(?:\d+,(?:\d{1,2}|\d{4,})|\d{1,3}(?:\.\d{3})+,\d+)\D{0,4}")
_POINT_DECIMAL: Final = re.compile(r"\D{0,4}(?:\d*\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3})+\.\d+)\D{0,4}")
_COMMA: Final = re.compile(r"\D{0,4}\d+,\d{3}\D{0,4}")
_POINTS: Final = re.compile(r"\D{0,4}[1-9]\d{0,2}(\.\d{3})+\D{0,4}")
_WHOLE: Final = re.compile(r"\D{0,4}\d+\D{0,4}")


def gaps_of(texts: Texts, more: Collection[str] = ()) -> NDArray[np.bool_]:
    """Return which texts stand for no value, (n,)."""
    pa = arrow()
    return np.asarray(pa.compute.is_in(texts, value_set=pa.array([*GAPS, *more])))


def has_decimal_point(cell: str) -> bool:
    """Whether a point in a text is a decimal sign for sure."""
    return bool(_POINT_DECIMAL.fullmatch(cell))


def has_grouping_points(cells: Collection[str]) -> bool:
    """Whether points of a column's numbers part thousands: below 1,000 there is none, and from there on there is."""
    with_points = [cell for cell in cells if "." in cell]
    whole = [cell for cell in cells if _WHOLE.fullmatch(cell)]
    if not with_points or not all(_POINTS.fullmatch(cell) for cell in with_points):
        return False
    is_split = bool(whole) and all(sum(map(str.isdigit, cell)) < _GROUP + 1 for cell in whole)
    return is_split or any(cell.count(".") > 1 for cell in with_points)


def decimal_of(cells: Collection[str], *, is_comma_free: bool) -> str:
    """Return the decimal sign of a file, a point or a comma, by some of its cells.

    is_comma_free: whether something else than commas separates values, so that ``1,234`` rather has a decimal comma.
    """
    if any(map(has_decimal_point, cells)):
        return "."
    with_comma = any(_COMMA_DECIMAL.fullmatch(cell) for cell in cells)
    return "," if with_comma or (is_comma_free and any(_COMMA.fullmatch(cell) for cell in cells)) else "."


def number_of(text: str, decimal: str = ".") -> float:
    """Return the number that a text writes, with a sign of currency or thousands' separators; NaN if it writes none."""
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
        digits = digits.translate(_SWAP)
    if grouped := _GROUPED.fullmatch(digits):
        digits = digits.replace(grouped[1], "")
    try:
        return math.nan if "_" in digits else float(amount[1] + amount[2] + digits)
    except ValueError:
        return math.nan


def numbers_of(texts: Texts, decimal: str = ".") -> Array:
    """Return the numbers that texts write, (n,); NaN where they write none."""
    pa = arrow()
    plain = texts
    if decimal == ",":
        has_points = pa.compute.any(pa.compute.match_substring(texts, ".")).as_py()
        plain = None if has_points else pa.compute.replace_substring(texts, ",", ".")
    try:
        if plain is not None:
            return np.asarray(plain.cast(pa.float64()), np.float64)
    except pa.ArrowInvalid:  # which of them it does not say; and it does not know "+5"
        pass
    return np.array([number_of(text, decimal) for text in texts.to_pylist()], np.float64)


def is_padded(text: str) -> bool:
    """Whether a text is a number with a zero before it, as codes have: nobody counts 007 of something."""
    return bool(_PADDED.match(text))


def in_order(texts: Iterable[str]) -> list[str]:
    """Return names in their order: as numbers if all are some, and as texts otherwise."""
    numbers = {text: math.nan if is_padded(text) else number_of(text) for text in texts}
    if any(map(math.isnan, numbers.values())):
        return sorted(numbers)
    return sorted(numbers, key=lambda text: (numbers[text], text))


def outcome_of(text: str, decimal: str = ".") -> float:
    """Return the number that a text writes, or 1 and 0 for yes and no; NaN for other texts."""
    number = number_of(text, decimal)
    if math.isnan(number) and text.lower() in YES + NO:
        return float(text.lower() in YES)
    return number


def read_value(feature: Feature, name: str, text: str, decimal: str = ".") -> float:
    """Read a text as a device reads what it may mean."""
    for meaning in _meanings(text, decimal):
        try:
            return feature.read(name, meaning)
        except InputError as error:
            refusal = error
    raise refusal


def _meanings(text: str, decimal: str) -> Iterator[str | float | bool]:
    """Yield what a text may mean: a level, a number, or yes or no."""
    yield text
    number = number_of(text, decimal)
    if math.isfinite(number):
        yield int(number) if number == int(number) else number
    if text.lower() in YES + NO:
        yield text.lower() in YES
