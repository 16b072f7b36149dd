"""Batches that a shuffler signs and delivers to the server, its claims of experiments, and the server's answer."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import BatchRefused
from privateer.wire.envelope import Envelope
from privateer.wire.signature import SECONDS_APART, Announcement, sign, verify

SIGNATURE_HEADER: Final = "privateer-signature"
_PURPOSE: Final = b"privateer/batch/2\0"
_CLAIM: Final = b"privateer/claim/1\0"


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


def sign_batch(body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the signature header of an encoded envelope that holds a whole permuted batch.

    Parameters
    ----------
    now
        Seconds since 1970; default: by the system's clock.
    """
    return sign(_PURPOSE, body, key, now)


def check_signature(text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return what a signature header says about the batch that follows.

    Raises
    ------
    BatchRefused
        If no trusted shuffler signed it, or not within five minutes of ``now``.
    """
    announced = verify(_PURPOSE, text, keys, now)
    if announced is None:
        raise _unsigned("batch")
    return announced


def sign_claim(experiment: str, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the signature header of a shuffler's claim of an experiment: no other one then takes its reports."""
    return sign(_CLAIM, experiment.encode(), key, now)


def check_claim(experiment: str, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return which trusted shuffler claims an experiment, and when it signed that.

    Raises
    ------
    BatchRefused
        If no trusted shuffler signed the claim of this experiment, or not within five minutes of ``now``.
    """
    announced = verify(_CLAIM, text, keys, now)
    if announced is None or announced.digest != hashlib.sha256(experiment.encode()).digest():
        raise _unsigned("claim")
    return announced


def _unsigned(what: str) -> BatchRefused:
    return BatchRefused(
        f"the {what} is not signed by a trusted shuffler within {SECONDS_APART} seconds",
        field=SIGNATURE_HEADER,
        remedy="give the server the shuffler's public key, and correct both clocks",
    )


def changed_batch() -> BatchRefused:
    """Return the refusal of a body that is not the one that was signed."""
    return BatchRefused("the batch is not the one that was signed", field=SIGNATURE_HEADER, remedy="send it again")


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
