"""Uploads of several people's reports by senders that the services trust: relays and load drivers."""

from typing import Final

import msgspec

from privateer_core.errors import SenderRefused
from privateer_core.wire.envelope import Envelope
from privateer_core.wire.publication import Round
from privateer_core.wire.signature import Purpose

_REMEDY: Final = "sign with a key in PRIVATEER_SENDER_KEYS and the right time, or send one person's report at a time"
UPLOAD: Final = Purpose(b"privateer/upload/1\0", "privateer-sender", "upload", "sender", SenderRefused, _REMEDY)


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
        raise SenderRefused(detail, field=UPLOAD.header, remedy=_REMEDY)
