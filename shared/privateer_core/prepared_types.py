"""Types with msgspec decoders that are built before threads share them, since building is not thread-safe."""

import threading
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
_build_lock: Final = threading.Lock()
_prepared_kinds: Final = set[object]()


def cache_decoder(kind: T) -> T:
    """Return the type itself, after msgspec has built and cached its decoder."""
    if kind not in _prepared_kinds:
        with _build_lock:
            msgspec.msgpack.Decoder(kind)
            _prepared_kinds.add(kind)
    return kind
