"""Uploads of several people's reports by senders that the services trust: relays and load drivers.

An unsigned upload carries one person's report, so that a false person costs a request.
"""

from collections.abc import Mapping
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer.errors import SenderRefused
from privateer.wire.envelope import Envelope
from privateer.wire.publication import Round
from privateer.wire.signature import SECONDS_APART, Announcement, sign, verify

SENDER_HEADER: Final = "privateer-sender"
_PURPOSE: Final = b"privateer/upload/1\0"
_REMEDY: Final = "sign with a key in PRIVATEER_SENDER_KEYS and the right time, or send one person's report at a time"


def sign_upload(body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the sender header of an encoded envelope.

    Parameters
    ----------
    now
        Seconds since 1970; default: by the system's clock.
    """
    return sign(_PURPOSE, body, key, now)


def check_sender(text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return what a sender header says about the upload that follows.

    Raises
    ------
    SenderRefused
        If no trusted sender signed it, or not within five minutes of ``now``.
    """
    announced = verify(_PURPOSE, text, keys, now)
    if announced is None:
        detail = f"the upload is not signed by a trusted sender within {SECONDS_APART} seconds"
        raise SenderRefused(detail, field=SENDER_HEADER, remedy=_REMEDY)
    return announced


def check_alone(envelope: Envelope, round_: Round) -> None:
    """Refuse an unsigned upload of more than one person's report.

    Raises
    ------
    SenderRefused
        If it carries more.
    """
    if len(envelope.sealed) >= 2 * round_.report_size:
        detail = "an upload without a trusted sender's signature carries one person's report"
        raise SenderRefused(detail, field=SENDER_HEADER, remedy=_REMEDY)


def changed_upload() -> SenderRefused:
    """Return the refusal of a body that is not the one that was signed."""
    return SenderRefused("the upload is not the one that was signed", field=SENDER_HEADER, remedy="send it again")
