"""Envelopes of sealed reports: one public header, and ciphertexts of equal length."""

from typing import Final, Literal

import msgspec

from privateer_core.errors import Malformed, RoundClosed, RoundUnknown, WrongDigest, WrongEndpoint, WrongKey, WrongSize
from privateer_core.prepared_types import prepared
from privateer_core.wire.publication import DIGEST_SIZE, KEY_ID_SIZE, Round

MEDIA_TYPE: Final = "application/msgpack"
REPORTS_PER_BODY_MAX: Final = 1000
"""Number of participants whose reports one request may carry. A device sends one report, a trusted sender more."""
_PURPOSE: Final = "privateer/report/1"
_VERSION_MAX: Final = 2**63 - 1
"""The largest integer of a database."""


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The round that a report is made for. Two honest reports of one round have the same header."""

    experiment: str
    version: int
    key_id: bytes
    digest: bytes

    def __post_init__(self) -> None:
        if len(self.key_id) != KEY_ID_SIZE or len(self.digest) != DIGEST_SIZE or not 1 <= self.version <= _VERSION_MAX:
            raise ValueError("header fields have fixed sizes")


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Sealed messages of participants under one header, concatenated. All have the round's ``sealed_size``."""

    header: Header
    sealed: bytes


def report_header(round_: Round, digest: bytes) -> Header:
    """Return the header of the reports made for a published round."""
    return Header(round_.experiment, round_.version, round_.key_id, digest)


def hpke_info(header: Header, model: str) -> bytes:
    """Return the HPKE ``info`` string that a report is bound to: purpose, trust model and header."""
    return msgspec.msgpack.encode((_PURPOSE, model, header))


def encode_envelope(envelope: Envelope) -> bytes:
    """Serialize an envelope."""
    return msgspec.msgpack.encode(envelope)


_DECODER: Final = msgspec.msgpack.Decoder(prepared(Envelope))


def decode_envelope(body: bytes | bytearray) -> Envelope:
    """Parse an envelope, and refuse other bytes."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed("the body is not an envelope", remedy="send what the client library makes") from error


def check_header(header: Header, round_: Round, digest: bytes, endpoint: Literal["server", "shuffler"]) -> None:
    """Refuse reports for another endpoint, version, key or publication than the round's.

    round_, digest: the round that is open, as fetched from the server, and the digest of its publication.
    """
    if round_.endpoint != endpoint:
        destination = f"the {round_.endpoint}"
        raise WrongEndpoint(f"reports of this experiment go to {destination}", remedy=f"send them to {destination}")
    if header.version < round_.version or (header.version == round_.version and round_.batch_size == 0):
        raise RoundClosed("this version takes no more reports", remedy="nothing to do: fetch the policy for later use")
    if header.version > round_.version:
        raise RoundUnknown("this version is not published", remedy="fetch the policy again")
    if header.key_id != round_.key_id:
        raise WrongKey("the report is sealed to another key than the round's", remedy="fetch the policy again")
    if header.digest != digest:
        raise WrongDigest("the report was made for another publication", remedy="fetch the policy again")


def split_sealed(envelope: Envelope, round_: Round) -> list[bytes]:
    """Return the sealed messages of each participant in an envelope, and refuse a wrong size or too many."""
    size, total = round_.report_size, len(envelope.sealed)
    if total == 0 or total % size or total // size > REPORTS_PER_BODY_MAX:
        detail = f"sealed reports of this round are {size} bytes, 1 to {REPORTS_PER_BODY_MAX} of them in a body"
        raise WrongSize(detail, remedy="send what the client library makes")
    return split_bytes(envelope.sealed, size)


def split_bytes(sealed: bytes, size: int) -> list[bytes]:
    """Split bytes into pieces of equal size."""
    return [sealed[start : start + size] for start in range(0, len(sealed), size)]
