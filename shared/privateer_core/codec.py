"""Serialization of dataclasses and structs with numpy arrays as msgpack, and of JSON documents as canonical JSON.

Policies, learner states, totals and releases are msgpack. Canonical JSON (RFC 8785) has one text for each document, so
that all readers compute the same digest of it.
"""

import math
import re
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np
import rfc8785

from privateer_core.errors import Malformed
from privateer_core.prepared_types import cache_decoder

T = TypeVar("T")
_DTYPE_REGEX: Final = re.compile(r"[<|][biuf]\d")
"""Little-endian numbers and booleans. Other type strings may make numpy create objects."""
_AXES_MAX: Final = 8
_EMPTY_AXIS_MAX: Final = 1 << 22
"""Length of the longest axis of an empty array: more than the keys of any policy, but a bound on allocations."""
_EXACT_INTEGER_LIMIT: Final = 1 << 53
"""Integers below this limit are exact as JSON numbers. Larger integers are rounded to the nearest double."""


def _encode_hook(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
    raise TypeError(f"cannot encode {type(value).__name__}")


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        return _decode_array(*value)
    raise TypeError(f"cannot decode {kind}")


def _decode_array(dtype: str, shape: list[int], data: bytes) -> np.ndarray[Any, Any]:
    """Decode an array from its type, shape and bytes, and refuse shapes that its bytes do not fill."""
    if not _DTYPE_REGEX.fullmatch(dtype):
        raise ValueError("arrays of this kind are not allowed")
    item_type = np.dtype(dtype)
    axis_max = max(len(data), _EMPTY_AXIS_MAX)
    if len(shape) > _AXES_MAX or not all(type(length) is int and 0 <= length <= axis_max for length in shape):
        raise ValueError("the shape is not possible")
    if math.prod(shape) * item_type.itemsize != len(data):
        raise ValueError("the bytes do not fit the shape")
    flat = np.frombuffer(data, dtype=item_type)
    if item_type == np.bool_ and flat.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a boolean is 0 or 1")
    return flat.reshape(shape)


def encode(value: Any) -> bytes:
    """Serialize a dataclass or struct as msgpack. Arrays keep dtype and shape."""
    return msgspec.msgpack.encode(value, enc_hook=_encode_hook)


def decode(body: bytes, kind: type[T]) -> T:
    """Parse an instance of ``kind`` that `encode` serialized; `Malformed` if that fails."""
    try:
        decoded: T = _decoder(cast(Any, kind)).decode(body)
        return decoded
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, ValueError, TypeError) as error:
        raise Malformed(f"this is not a serialized {kind.__name__}", remedy="fetch it again") from error


@cache
def _decoder(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cache_decoder(kind), dec_hook=_decode_hook)


def encode_canonical_json(value: Any) -> bytes:
    """Return the canonical JSON text of a value, in UTF-8.

    Members of objects are sorted by the UTF-16 code units of their keys, there is no white space, and numbers are
    written as in ECMAScript. Integers of 2^53 and more are written as the nearest double, which all readers parse.
    """
    return rfc8785.dumps(_convert_large_integers(value))


def _convert_large_integers(value: Any) -> Any:
    """Return a JSON value with all integers of 2^53 and more as floats."""
    if isinstance(value, dict):
        return {key: _convert_large_integers(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_convert_large_integers(element) for element in value]
    return float(value) if isinstance(value, int) and abs(value) >= _EXACT_INTEGER_LIMIT else value
