"""Signed bodies with the reports of several participants: uploads of trusted senders, and a shuffler's batches.

The signature is in a header of the request, so that a service knows sender and length of a body before it reads it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privateer_core.clock import SystemClock
from privateer_core.errors import BatchRefused, PrivateerError, SenderRefused
from privateer_core.prepared_types import cache_decoder
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.publication import SENDER_HEADER, SENDER_REMEDY, Envelope

CLOCK_TOLERANCE_SECONDS: Final = 300
"""Largest difference between the clocks of sender and service, and validity of a signature."""
_CLOCK_MESSAGE: Final = f"not within {CLOCK_TOLERANCE_SECONDS} seconds of this service's clock"
CLOCK_REMEDY: Final = "set the clocks of both machines right (timedatectl, NTP)"
SIGNATURE_PATTERN: Final = r"([0-9a-f]{16})\.([0-9]{1,12})\.([0-9]{1,15})\.([0-9a-f]{64})\.([0-9a-f]{128})"
"""Key id, time, length, digest and signature."""
_SIGNATURE_REGEX: Final = re.compile(SIGNATURE_PATTERN)


@dataclass(frozen=True)
class Announcement:
    """The facts that a valid signature states about the body that follows."""

    key_id: str  # id of the key that signed, hexadecimal
    signed_at: int  # seconds since 1970, by the sender's clock
    # length, digest: bytes of the body, and their SHA-256
    length: int
    digest: bytes


@dataclass(frozen=True)
class Purpose:
    """The purpose of a signature, which is valid for nothing else."""

    tag: bytes  # is signed along with the body
    header: str  # name of the HTTP header that carries the signature
    # subject, signer: the kind of signed body and of signer, for messages
    subject: str
    signer: str
    # refusal, remedy: type and remedy of the error for a signature that is not valid
    refusal: type[PrivateerError]
    remedy: str

    def sign(self, body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
        """Return the header's text for ``body``: key id, time, length, digest and signature, separated by dots.

        ``now`` is in seconds since 1970, by default by the system's clock.
        """
        time = int(SystemClock().now() if now is None else now)
        claim = f"{signing_key_id(key.public_key())}.{time}.{len(body)}.{hashlib.sha256(body).hexdigest()}"
        return f"{claim}.{key.sign(self.tag + claim.encode()).hex()}"

    def verify(self, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
        """Return the facts about the body that a header states, and refuse a signature that is old or not trusted."""
        match = _SIGNATURE_REGEX.fullmatch(text)
        if match is None or match[1] not in keys:
            raise self.unsigned_error()
        try:
            keys[match[1]].verify(bytes.fromhex(match[5]), self.tag + text[: -len(match[5]) - 1].encode())
        except InvalidSignature:
            raise self.unsigned_error() from None
        if abs(int(match[2]) - now) > CLOCK_TOLERANCE_SECONDS:
            detail = f"a trusted {self.signer} signed the {self.subject}, but {_CLOCK_MESSAGE}"
            raise self.refusal(detail, field=self.header, remedy=CLOCK_REMEDY)
        return Announcement(match[1], int(match[2]), int(match[3]), bytes.fromhex(match[4]))

    def unsigned_error(self) -> PrivateerError:
        """Return the error about a signature that is not valid."""
        detail = f"the {self.subject} is not signed by a trusted {self.signer}"
        return self.refusal(detail, field=self.header, remedy=self.remedy)

    def changed_body_error(self) -> PrivateerError:
        """Return the error about a body that differs from the signed body."""
        detail = f"the {self.subject} is not the one that was signed"
        return self.refusal(detail, field=self.header, remedy="send it again")


def is_clock_problem(problem: bytes) -> bool:
    """Whether a service's problem document says that the signature is valid, but a clock is wrong."""
    return _CLOCK_MESSAGE.encode() in problem


UPLOAD: Final = Purpose(b"privateer/upload/1\0", SENDER_HEADER, "upload", "sender", SenderRefused, SENDER_REMEDY)
SIGNATURE_HEADER: Final = "privateer-signature"
_REMEDY: Final = "give the server the shuffler's public key"
BATCH: Final = Purpose(b"privateer/batch/2\0", SIGNATURE_HEADER, "batch", "shuffler", BatchRefused, _REMEDY)
OPENING: Final = Purpose(b"privateer/opening/1\0", SIGNATURE_HEADER, "opening", "shuffler", BatchRefused, _REMEDY)
CLOSING: Final = Purpose(b"privateer/closing/1\0", SIGNATURE_HEADER, "closing", "shuffler", BatchRefused, _REMEDY)
"""Purposes of both bodies about a batch in shares (`privateer_core.wire.shares`)."""
_CLAIM: Final = Purpose(b"privateer/claim/1\0", SIGNATURE_HEADER, "claim", "shuffler", BatchRefused, _REMEDY)


class UploadAnswer(msgspec.Struct, frozen=True):
    """The number of reports of an upload that are counted, and the numbers of refused reports by reason."""

    accepted: int
    refused: dict[str, int]


class BatchAnswer(msgspec.Struct, frozen=True):
    """The server's answer to a batch. It stays the same if the batch is delivered again."""

    # accepted, refused: number of participants whose reports are counted, and of the refused by reason
    accepted: int
    refused: dict[str, int]
    # whether the version takes no further batch. If it does, the shuffler fills another whole batch for it.
    closed: bool


def sign_claim(experiment: str, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the signature header by which a shuffler claims an experiment's reports for itself alone."""
    return _CLAIM.sign(experiment.encode(), key, now)


def verify_claim(experiment: str, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return key and time of a shuffler's claim of an experiment, and refuse a signature that is not valid."""
    announcement = _CLAIM.verify(text, keys, now)
    if announcement.digest != hashlib.sha256(experiment.encode()).digest():
        raise _CLAIM.unsigned_error()
    return announcement


def decode_batch(body: bytes | bytearray) -> Envelope:
    """Parse a batch: an envelope of any number of reports; refuse other bytes."""
    try:
        return msgspec.msgpack.decode(body, type=cache_decoder(Envelope))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchRefused("the batch is not an envelope", remedy="send what the shuffler makes") from error
