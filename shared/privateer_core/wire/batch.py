"""Bodies of several people's reports, which trusted senders sign: uploads, and a shuffler's batches and claims.

The signature is in a header of the request: a service knows who sends a body, and how much, before it reads it.
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
from privateer_core.prepared_types import prepared
from privateer_core.wire.envelope import Envelope
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.publication import Round

SECONDS_APART: Final = 300
"""How far the clocks of sender and service may be apart, and how long a signature is valid."""
_APART: Final = f"not within {SECONDS_APART} seconds of this service's clock"
SET_CLOCKS: Final = "set the clocks of both machines right (timedatectl, NTP)"
FORM: Final = r"([0-9a-f]{16})\.([0-9]{1,12})\.([0-9]{1,15})\.([0-9a-f]{64})\.([0-9a-f]{128})"
"""Key id, time, length, digest and signature."""
_FORM: Final = re.compile(FORM)
_UPLOAD_REMEDY: Final = "sign with a key in PRIVATEER_SENDER_KEYS, or send one person's report at a time"


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
    # what, signer: what is signed and who may sign it, for messages
    what: str
    signer: str
    # refusal, remedy: the error if the signature is not valid, and what to do then
    refusal: type[PrivateerError]
    remedy: str

    def sign(self, body: bytes, key: Ed25519PrivateKey, now: float | None = None) -> str:
        """Return the header's text for ``body``: key id, time, length, digest and signature, separated by dots.

        ``now`` is in seconds since 1970, by default by the system's clock.
        """
        time = int(SystemClock().now() if now is None else now)
        claim = f"{signing_key_id(key.public_key())}.{time}.{len(body)}.{hashlib.sha256(body).hexdigest()}"
        return f"{claim}.{key.sign(self.tag + claim.encode()).hex()}"

    def check(self, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
        """Return what a header's text says about the body that follows."""
        found = _FORM.fullmatch(text)
        if found is None or found[1] not in keys:
            raise self.unsigned()
        try:
            keys[found[1]].verify(bytes.fromhex(found[5]), self.tag + text[: -len(found[5]) - 1].encode())
        except InvalidSignature:
            raise self.unsigned() from None
        if abs(int(found[2]) - now) > SECONDS_APART:
            detail = f"a trusted {self.signer} signed the {self.what}, but {_APART}"
            raise self.refusal(detail, field=self.header, remedy=SET_CLOCKS)
        return Announcement(found[1], int(found[2]), int(found[3]), bytes.fromhex(found[4]))

    def unsigned(self) -> PrivateerError:
        """Return the refusal of a signature that is not valid."""
        detail = f"the {self.what} is not signed by a trusted {self.signer}"
        return self.refusal(detail, field=self.header, remedy=self.remedy)

    def changed(self) -> PrivateerError:
        """Return the refusal of a body that is not the one that was signed."""
        detail = f"the {self.what} is not the one that was signed"
        return self.refusal(detail, field=self.header, remedy="send it again")


def blames_clock(problem: bytes) -> bool:
    """Whether a service's problem says that the signature is good, and one of the two clocks is wrong."""
    return _APART.encode() in problem


UPLOAD: Final = Purpose(b"privateer/upload/1\0", "privateer-sender", "upload", "sender", SenderRefused, _UPLOAD_REMEDY)
SIGNATURE_HEADER: Final = "privateer-signature"
_REMEDY: Final = "give the server the shuffler's public key"
BATCH: Final = Purpose(b"privateer/batch/2\0", SIGNATURE_HEADER, "batch", "shuffler", BatchRefused, _REMEDY)
_CLAIM: Final = Purpose(b"privateer/claim/1\0", SIGNATURE_HEADER, "claim", "shuffler", BatchRefused, _REMEDY)


class UploadAnswer(msgspec.Struct, frozen=True):
    """How many reports of an upload are counted, and how many were refused, by reason."""

    accepted: int
    refused: dict[str, int]


def check_alone(envelope: Envelope, round_: Round) -> None:
    """Refuse an unsigned upload of more than one person's report, so that a false person costs a request."""
    if len(envelope.sealed) >= 2 * round_.report_size:
        detail = "an upload without a trusted sender's signature carries one person's report"
        raise SenderRefused(detail, field=UPLOAD.header, remedy=_UPLOAD_REMEDY)


class BatchAnswer(msgspec.Struct, frozen=True):
    """What the server answers to a batch. It stays the same if the batch is delivered again."""

    # accepted, refused: number of people whose reports opened and count, and of the others by reason
    accepted: int
    refused: dict[str, int]
    # whether the version takes no further batch. If it does, the shuffler fills another whole batch for it.
    closed: bool


def sign_claim(experiment: str, key: Ed25519PrivateKey, now: float | None = None) -> str:
    """Return the signature header of a shuffler's claim of an experiment: no other one then takes its reports."""
    return _CLAIM.sign(experiment.encode(), key, now)


def check_claim(experiment: str, text: str, keys: Mapping[str, Ed25519PublicKey], now: float) -> Announcement:
    """Return which trusted shuffler claims an experiment, and when it signed that."""
    announced = _CLAIM.check(text, keys, now)
    if announced.digest != hashlib.sha256(experiment.encode()).digest():
        raise _CLAIM.unsigned()
    return announced


def decode_batch(body: bytes | bytearray) -> Envelope:
    """Parse a batch: an envelope without a limit on its reports."""
    try:
        return msgspec.msgpack.decode(body, type=prepared(Envelope))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchRefused("the batch is not an envelope", remedy="send what the shuffler makes") from error
