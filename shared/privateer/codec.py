"""Frozen dataclasses with numpy arrays to msgpack and back: policies, learner states, totals and releases."""

import re
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from privateer.errors import Malformed

T = TypeVar("T")
_DTYPE: Final = re.compile(r"[<|][biuf]\d")
"""Little-endian numbers and booleans; numpy would evaluate other strings, or make objects of them."""


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
    raise TypeError(f"cannot encode {type(value).__name__}")


def _decode(kind: type, value: Any) -> Any:
    if kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray:
        dtype, shape, data = value
        if not _DTYPE.fullmatch(dtype):
            raise ValueError("no such kind of array travels")
        return np.frombuffer(data, dtype=dtype).reshape(shape)
    raise TypeError(f"cannot decode {kind}")


def encode(value: Any) -> bytes:
    """Serialize a dataclass; arrays keep dtype and shape."""
    return msgspec.msgpack.encode(value, enc_hook=_encode)


def decode(body: bytes, kind: type[T]) -> T:
    """Parse what `encode` made of a ``kind``.

    Raises
    ------
    Malformed
        If ``body`` is not a serialized ``kind``.
    """
    try:
        return msgspec.msgpack.decode(body, type=kind, dec_hook=_decode)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError) as error:
        raise Malformed(f"not a serialized {kind.__name__}", remedy="fetch it again") from error
