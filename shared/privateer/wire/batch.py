"""Full batches on their way from the shuffler to the server: signed by the shuffler, and answered."""

import re
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import BatchRefused
from privateer.wire.envelope import Envelope

SIGNATURE_HEADER: Final = "privateer-signature"
_PURPOSE: Final = b"privateer/batch/1\0"
_CLAIM: Final = b"privateer/claim/1\0"


class BatchAnswer(msgspec.Struct, frozen=True):
    """What the server answers to a batch, the same however often the batch is delivered.

    Attributes
    ----------
    accepted, refused
        People whose reports opened and count, and the others by reason.
    closed
        Whether the version takes no further batch. If not, the shuffler fills another whole batch for it.
    """

    accepted: int
    refused: dict[str, int]
    closed: bool


def sign_batch(body: bytes, key: Ed25519PrivateKey) -> str:
    """Signature (hex) of an encoded envelope that holds a whole permuted batch."""
    return key.sign(_PURPOSE + body).hex()


def sign_claim(experiment: str, key: Ed25519PrivateKey) -> str:
    """Signature (hex) by which a shuffler claims an experiment, so that no other one takes reports for it."""
    return key.sign(_CLAIM + experiment.encode()).hex()


def is_signature(text: str) -> bool:
    """Whether ``text`` has the form of a signature: what can be told before the batch is read."""
    return re.fullmatch(r"[0-9a-f]{128}", text) is not None


def check_claim(experiment: str, signature: str, keys: list[Ed25519PublicKey]) -> str:
    """The public key (hex) of the trusted shuffler that claims an experiment.

    Raises
    ------
    BatchRefused
        If no key in ``keys`` verifies ``signature``.
    """
    return _signer(_CLAIM + experiment.encode(), signature, keys)


def check_signature(body: bytes, signature: str, keys: list[Ed25519PublicKey]) -> str:
    """The public key (hex) of the trusted shuffler that signed a batch.

    Raises
    ------
    BatchRefused
        If no key in ``keys`` verifies ``signature``.
    """
    return _signer(_PURPOSE + body, signature, keys)


def _signer(signed: bytes, signature: str, keys: list[Ed25519PublicKey]) -> str:
    for key in keys if is_signature(signature) else ():
        try:
            key.verify(bytes.fromhex(signature), signed)
        except InvalidSignature:
            continue
        return key.public_bytes_raw().hex()
    raise unsigned()


def unsigned() -> BatchRefused:
    """The refusal of a batch, or a claim, without a trusted signature."""
    return BatchRefused(
        "the request is not signed by a trusted shuffler",
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
