"""Bodies of several people's reports, which trusted senders sign: uploads, and a shuffler's batches and claims."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.errors import BatchRefused, SenderRefused
from privateer_core.wire.envelope import Envelope
from privateer_core.wire.publication import Round
from privateer_core.wire.signature import Announcement, Purpose

_UPLOAD_REMEDY: Final = (
    "sign with a key in PRIVATEER_SENDER_KEYS and the right time, or send one person's report at a time"
)
UPLOAD: Final = Purpose(b"privateer/upload/1\0", "privateer-sender", "upload", "sender", SenderRefused, _UPLOAD_REMEDY)
SIGNATURE_HEADER: Final = "privateer-signature"
_REMEDY: Final = "give the server the shuffler's public key, and correct both clocks"
BATCH: Final = Purpose(b"privateer/batch/2\0", SIGNATURE_HEADER, "batch", "shuffler", BatchRefused, _REMEDY)
_CLAIM: Final = Purpose(b"privateer/claim/1\0", SIGNATURE_HEADER, "claim", "shuffler", BatchRefused, _REMEDY)


class UploadAnswer(msgspec.Struct, frozen=True):
    """How many reports of an upload are counted, and how many were refused, by reason."""

    accepted: int
    refused: dict[str, int]


def check_alone(envelope: Envelope, round_: Round) -> None:
    """Refuse an unsigned upload of more than one person's report, so that a false person costs a request.

    Raises
    ------
    SenderRefused
        If it carries more.
    """
    if len(envelope.sealed) >= 2 * round_.report_size:
        detail = "an upload without a trusted sender's signature carries one person's report"
        raise SenderRefused(detail, field=UPLOAD.header, remedy=_UPLOAD_REMEDY)


class BatchAnswer(msgspec.Struct, frozen=True):
    """What the server answers to a batch. It stays the same if the batch is delivered again.

    Attributes
    ----------
    accepted, refused
        Number of people whose reports opened and count, and of the others by reason.
    closed
        Whether the version takes no further batch. If it does, the shuffler fills another whole batch for it.
    """

    accepted: int
    refused: dict[str, int]
    closed: bool


def sign_claim(experiment: str, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the signature header of a shuffler's claim of an experiment: no other one then takes its reports."""
    return _CLAIM.sign(experiment.encode(), key, now)


def check_claim(experiment: str, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return which trusted shuffler claims an experiment, and when it signed that.

    Raises
    ------
    BatchRefused
        If no trusted shuffler signed the claim of this experiment, or not within five minutes of ``now``.
    """
    announced = _CLAIM.check(text, keys, now)
    if announced.digest != hashlib.sha256(experiment.encode()).digest():
        raise _CLAIM.unsigned()
    return announced


def decode_batch(body: bytes | bytearray) -> Envelope:
    """Parse a batch: an envelope without a limit on its reports.

    Raises
    ------
    BatchRefused
        If ``body`` is not an envelope.
    """
    try:
        return msgspec.msgpack.decode(body, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchRefused("the batch is not an envelope", remedy="send what the shuffler makes") from error
