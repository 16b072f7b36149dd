"""Answers as they travel with a publication."""

from typing import Final

import msgspec

from privateer_core.answer import Answer
from privateer_core.errors import Malformed
from privateer_core.prepared_types import prepared

SIZE_MAX: Final = 4 << 20
"""Bytes of an encoded answer."""


def encode_answer(answer: Answer) -> bytes:
    """Serialize an answer as msgpack."""
    return msgspec.msgpack.encode(answer)


def decode_answer(body: bytes) -> Answer:
    """Parse what `encode_answer` made.

    Raises
    ------
    Malformed
        If ``body`` is no answer, or is above 4 MiB.
    """
    try:
        if len(body) > SIZE_MAX:
            raise ValueError("too large")
        return msgspec.msgpack.decode(body, type=prepared(Answer))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Malformed("not a serialized answer", field="result", remedy="fetch the policy again") from error
