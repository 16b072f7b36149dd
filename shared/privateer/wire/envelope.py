"""Sealed reports on their way: a public header shared by all of them, and equal-length ciphertexts."""

from typing import Final

import msgspec

from privateer.errors import Malformed, RoundClosed, RoundUnknown, WrongDigest, WrongEndpoint, WrongKey, WrongSize
from privateer.wire.publication import DIGEST_SIZE, KEY_ID_SIZE, Round

MEDIA_TYPE: Final = "application/msgpack"
REPORTS_PER_BODY_MAX: Final = 1000
"""People whose reports one request may carry; a device sends one, a trusted sender more."""
_PURPOSE: Final = "privateer/report/1"


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a report is made for. Two honest reports of one round have the same header."""

    experiment: str
    version: int
    key_id: bytes
    digest: bytes

    def __post_init__(self) -> None:
        if len(self.key_id) != KEY_ID_SIZE or len(self.digest) != DIGEST_SIZE or self.version < 1:
            raise ValueError("header fields have fixed sizes")


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One or more people's sealed messages under one header, concatenated: all have the round's ``sealed_size``."""

    header: Header
    sealed: bytes


def header_of(round_: Round, digest: bytes) -> Header:
    """Header of the reports made for a published round."""
    return Header(round_.experiment, round_.version, round_.key_id, digest)


def binding(header: Header, model: str) -> bytes:
    """The HPKE ``info`` string: purpose, header and trust model, so that a report opens only where it was meant to."""
    return msgspec.msgpack.encode((_PURPOSE, model, header))


def encode_envelope(envelope: Envelope) -> bytes:
    """Serialize an envelope."""
    return msgspec.msgpack.encode(envelope)


def decode_envelope(body: bytes | bytearray) -> Envelope:
    """Parse an envelope.

    Raises
    ------
    Malformed
        If ``body`` is not an envelope.
    """
    try:
        return msgspec.msgpack.decode(body, type=Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed("the body is not an envelope", remedy="send what the client library makes") from error


def check_header(header: Header, round_: Round, digest: bytes, endpoint: str) -> None:
    """Refuse reports that were not made for this round.

    Parameters
    ----------
    header
        Of the reports at the door.
    round_, digest
        The round that is open, as fetched from the server, and the digest of its publication.
    door
        The trust model whose reports this door takes, or ``direct`` for all that need no shuffler.

    Raises
    ------
    WrongDoor, RoundClosed, RoundUnknown, WrongKey, WrongDigest
    """
    wants_shuffler = round_.model == "shuffle"
    if wants_shuffler != (endpoint == "shuffle"):
        where = "the shuffler" if wants_shuffler else "the server"
        raise WrongEndpoint(f"reports of this experiment go to {where}", remedy=f"send them to {where}")
    if header.version < round_.version or (header.version == round_.version and round_.batch == 0):
        raise RoundClosed("this version takes no more reports", remedy="nothing to do: fetch the policy for later use")
    if header.version > round_.version:
        raise RoundUnknown("this version is not published", remedy="fetch the policy again")
    if header.key_id != round_.key_id:
        raise WrongKey("the report is sealed to another key than the round's", remedy="fetch the policy again")
    if header.digest != digest:
        raise WrongDigest("the report was made for another publication", remedy="fetch the policy again")


def split_sealed(envelope: Envelope, round_: Round) -> list[bytes]:
    """What the people of an envelope send, one after another: the round's number of sealed messages each.

    Raises
    ------
    WrongSize
        If there is nobody, too many, or not all send the round's size.
    """
    size, total = round_.report_size, len(envelope.sealed)
    if total == 0 or total % size or total // size > REPORTS_PER_BODY_MAX:
        raise WrongSize(
            f"sealed reports of this round are {size} bytes, 1 to {REPORTS_PER_BODY_MAX} of them in a body",
            remedy="send what the client library makes",
        )
    return pieces(envelope.sealed, size)


def pieces(sealed: bytes, size: int) -> list[bytes]:
    """Bytes cut into pieces of one size."""
    return [sealed[start : start + size] for start in range(0, len(sealed), size)]
