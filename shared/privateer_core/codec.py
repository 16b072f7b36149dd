"""Values to bytes: dataclasses and structs with numpy arrays to msgpack and back, and canonical JSON.

Policies, learner states, totals and releases are msgpack. Canonical JSON (RFC 8785) is one text for one document, so
that a digest of it means the same to everybody.
"""

import math
import re
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np
import rfc8785

from privateer_core.errors import Malformed
from privateer_core.prepared_types import prepared

T = TypeVar("T")
_DTYPE: Final = re.compile(r"[<|][biuf]\d")
"""Little-endian numbers and booleans. Of other strings numpy might make objects."""
_AXES_MAX: Final = 8
_EMPTY_MAX: Final = 1 << 22
"""Longest axis of an array without bytes: more than the keys of any policy, and a few bytes cannot ask for more."""
_EXACT: Final = 1 << 53
"""Integers below are numbers of JSON as they stand; others are what a double makes of them."""


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
    raise TypeError(f"cannot encode {type(value).__name__}")


def _decode(kind: type, value: Any) -> Any:
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        return _array(*value)
    raise TypeError(f"cannot decode {kind}")


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray[Any, Any]:
    """Return an array, if its shape fits its bytes and the axes of an empty one are short."""
    if not _DTYPE.fullmatch(dtype):
        raise ValueError("arrays of this kind are not allowed")
    kind = np.dtype(dtype)
    longest = max(len(data), _EMPTY_MAX)
    if len(shape) > _AXES_MAX or not all(type(length) is int and 0 <= length <= longest for length in shape):
        raise ValueError("the shape is not possible")
    if math.prod(shape) * kind.itemsize != len(data):
        raise ValueError("the bytes do not fit the shape")
    flat = np.frombuffer(data, dtype=kind)
    if kind == np.bool_ and flat.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a boolean is 0 or 1")
    return flat.reshape(shape)


def encode(value: Any) -> bytes:
    """Serialize a dataclass or struct. Arrays keep dtype and shape."""
    return msgspec.msgpack.encode(value, enc_hook=_encode)


def decode(body: bytes, kind: type[T]) -> T:
    """Parse a ``kind`` that `encode` serialized."""
    try:
        decoded: T = _decoder(cast(Any, kind)).decode(body)
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, ValueError, TypeError) as error:
        raise Malformed(f"this is not a serialized {kind.__name__}", remedy="fetch it again") from error


@cache
def _decoder(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(prepared(kind), dec_hook=_decode)


def canonical(value: Any) -> bytes:
    """Return the canonical JSON text of a value, in UTF-8.

    Objects are sorted by the UTF-16 code units of their keys, there is no white space, and numbers are written as
    ECMAScript writes them. Integers of 2^53 and more are written as the nearest double: any reader takes them so.
    """
    return rfc8785.dumps(_with_doubles(value))


def _with_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_doubles(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_doubles(one) for one in value]
    return float(value) if isinstance(value, int) and abs(value) >= _EXACT else value
