"""A full round on its way from the shuffler to the server, signed by the shuffler."""

import re
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import BatchRefused
from privateer.wire.envelope import Envelope

SIGNATURE_HEADER: Final = "privateer-signature"
_PURPOSE: Final = b"privateer/batch/1\0"


def sign_batch(body: bytes, key: Ed25519PrivateKey) -> str:
    """Signature (hex) of an encoded envelope that holds a whole permuted round."""
    return key.sign(_PURPOSE + body).hex()


def is_signature(text: str) -> bool:
    """Whether ``text`` has the form of a signature: what can be told before the batch is read."""
    return re.fullmatch(r"[0-9a-f]{128}", text) is not None


def check_signature(body: bytes, signature: str, keys: list[Ed25519PublicKey]) -> None:
    """Refuse a batch that no trusted shuffler signed.

    Raises
    ------
    BatchRefused
        If no key in ``keys`` verifies ``signature``.
    """
    for key in keys if is_signature(signature) else ():
        try:
            key.verify(bytes.fromhex(signature), _PURPOSE + body)
        except InvalidSignature:
            continue
        return
    raise unsigned()


def unsigned() -> BatchRefused:
    """The refusal of a batch without a trusted signature."""
    return BatchRefused(
        "the batch is not signed by a trusted shuffler",
        field=SIGNATURE_HEADER,
        remedy="give the server the shuffler's public key",
    )


def decode_batch(body: bytes) -> Envelope:
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
