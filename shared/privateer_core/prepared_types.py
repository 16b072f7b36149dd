"""Types whose decoders msgspec has built before threads share them: it is not safe to build one in two at once."""

import threading
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
_building: Final = threading.Lock()
_prepared: Final = set[object]()


def prepared(kind: T) -> T:
    """Return a type for msgspec to decode or convert to, once it has built all that it keeps of it."""
    if kind not in _prepared:
        with _building:
            msgspec.msgpack.Decoder(kind)
            _prepared.add(kind)
    return kind
