"""JSON as RFC 8785 has it: one text for one document, so that a digest of it means the same to everybody."""

from typing import Any, Final

import rfc8785

_EXACT: Final = 1 << 53
"""Integers below are numbers of JSON as they stand; others are what a double makes of them."""


def canonical(value: Any) -> bytes:
    """Return the canonical JSON text of a value, in UTF-8.

    Objects are sorted by the UTF-16 code units of their keys, there is no white space, and numbers are written as
    ECMAScript writes them. Integers of 2^53 and more are written as the nearest double: any reader takes them so.

    Raises
    ------
    ValueError
        If the value is not JSON: a key that is no text, a number that is not finite, or half a surrogate pair.
    """
    return rfc8785.dumps(_with_doubles(value))


def _with_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_doubles(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_doubles(one) for one in value]
    return float(value) if isinstance(value, int) and abs(value) >= _EXACT else value
