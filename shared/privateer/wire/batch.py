"""A full round on its way from the shuffler to the server, signed by the shuffler."""

from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import BatchRefused
from privateer.wire.envelope import Envelope
from privateer.wire.signature import SECONDS_APART, Announcement, sign, verify

SIGNATURE_HEADER: Final = "privateer-signature"
_PURPOSE: Final = b"privateer/batch/2\0"


def sign_batch(body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """The signature header of an encoded envelope that holds a whole permuted round.

    Parameters
    ----------
    now
        Seconds since 1970; default: by the system's clock.
    """
    return sign(_PURPOSE, body, key, now)


def check_signature(text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """What a signature header says of the batch that follows.

    Raises
    ------
    BatchRefused
        If no trusted shuffler signed it, or not within five minutes of ``now``.
    """
    announced = verify(_PURPOSE, text, keys, now)
    if announced is None:
        raise BatchRefused(
            f"the batch is not signed by a trusted shuffler within {SECONDS_APART} seconds",
            field=SIGNATURE_HEADER,
            remedy="give the server the shuffler's public key, and set both clocks",
        )
    return announced


def changed_batch() -> BatchRefused:
    """The refusal of a body that is not the one that was signed."""
    return BatchRefused("the batch is not the one that was signed", field=SIGNATURE_HEADER, remedy="send it again")


def decode_batch(body: bytes | bytearray) -> Envelope:
    """Parse a batch: an envelope without the limit on reports per body.

    Raises
    ------
    BatchRefused
        If ``body`` is not an envelope.
    """
    try:
        return msgspec.msgpack.decode(body, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchRefused("the batch is not an envelope", remedy="send what the shuffler makes") from error
