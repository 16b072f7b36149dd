"""JSON as RFC 8785 has it: one text for one document, so that a digest of it means the same to everybody."""

import json
import math
from decimal import Decimal
from typing import Any, Final

_EXACT: Final = 1 << 53
"""Integers below are numbers of JSON as they stand; others are what a double makes of them."""
_PLAIN: Final = 21
"""Digits before the point, from which on numbers have an exponent."""
_SMALL: Final = -6
"""Zeros after the point, from which on numbers have an exponent."""


def canonical(value: Any) -> bytes:
    """Return the canonical JSON text of a value, in UTF-8.

    Objects are sorted by the UTF-16 code units of their keys, there is no white space, and numbers are written as
    ECMAScript writes them.

    Raises
    ------
    ValueError
        If the value is not JSON: a key that is no text, a number that is not finite, or half a surrogate pair.
    """
    return _text(value).encode()


def _text(value: Any) -> str:
    if isinstance(value, dict):
        rows = sorted(value.items(), key=lambda row: row[0].encode("utf-16-be"))
        return "{" + ",".join(f"{_text(key)}:{_text(one)}" for key, one in rows) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and abs(value) < _EXACT:
        return str(value)
    if isinstance(value, int | float):
        return _number(float(value))
    raise ValueError(f"{type(value).__name__} is not JSON")


def _number(value: float) -> str:
    """Write a double as ECMAScript does (``Number::toString``): the shortest digits that name it."""
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    if value == 0:
        return "0"
    negative, found, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits, sign = "".join(map(str, found)), "-" * negative
    point = len(digits) + exponent
    if len(digits) <= point <= _PLAIN:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= _PLAIN:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _SMALL < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"
