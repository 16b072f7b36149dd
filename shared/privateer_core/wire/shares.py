"""Reports in shares of two servers, and the bodies of their exchange (docs/privacy/split-exchange.md).

A report is a nonce, a public share, the helper's sealed share and the leader's sealed share. The shuffler's
organisation is the helper, and takes the reports; the learning server is the leader, and never sees the helper's share.
Every byte that a server checks a share with is bound to it: its seal opens for one round, nonce and public share alone.
"""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.errors import BatchRefused
from privateer_core.prepared_types import cache_decoder
from privateer_core.wire.publication import NONCE_SIZE, Header, split_bytes

PUBLIC_SIZE: Final = 64
HELPER_SIZE: Final = 64
"""Bytes of the helper's share: a seed of its vote and proof, and a blind."""
COINS_SIZE: Final = 4
"""Bytes of the public coins, which the leader alone needs: they come before its share."""
_SEAL_SIZE: Final = 48
_SEALED_HELPER_SIZE: Final = _SEAL_SIZE + HELPER_SIZE
_HEAD_SIZE: Final = NONCE_SIZE + PUBLIC_SIZE
_PURPOSE: Final = "privateer/share/1"
_CONTEXT: Final = b"privateer/split/1\0"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class ShareParty(StrEnum):
    """A server that gets a share; Prio3 numbers them 0 and 1."""

    LEADER = "leader"
    HELPER = "helper"


class Decision(IntEnum):
    """What became of a report of an opening, a byte each in the closing."""

    ACCEPTED = 0
    UNOPENED = 1  # the leader's share does not open, or is none
    INVALID = 2  # the proof does not hold, or the device gave both servers different parts


class SharedReport(NamedTuple):
    """The parts of a report as a device sends them."""

    nonce: bytes
    public: bytes
    helper: bytes  # sealed
    leader: bytes  # sealed, with the public coins before it

    @classmethod
    def parse(cls, message: bytes) -> "SharedReport":
        """Split a message of the round's size into its parts."""
        end = _HEAD_SIZE + _SEALED_HELPER_SIZE
        return cls(message[:NONCE_SIZE], message[NONCE_SIZE:_HEAD_SIZE], message[_HEAD_SIZE:end], message[end:])

    @property
    def for_leader(self) -> bytes:
        """The report as the helper sends it to the leader."""
        return self.nonce + self.public + self.leader


class LeaderReport(NamedTuple):
    """The parts of a report as the leader gets them."""

    nonce: bytes
    public: bytes
    sealed: bytes


def shared_report_size(share_size: int) -> int:
    """Return the bytes of a report by those of the nonce and all its shares, unsealed."""
    return share_size + COINS_SIZE + 2 * _SEAL_SIZE


def split_opening(reports: bytes, sealed_size: int) -> list[LeaderReport]:
    """Split the reports of an opening, for a round with messages of this size; refuse other bytes."""
    size = sealed_size - _SEALED_HELPER_SIZE
    if not reports or len(reports) % size:
        raise BatchRefused(f"reports of this opening are {size} bytes each", remedy="send what the shuffler makes")
    parts = split_bytes(reports, size)
    return [LeaderReport(part[:NONCE_SIZE], part[NONCE_SIZE:_HEAD_SIZE], part[_HEAD_SIZE:]) for part in parts]


class ShareSeal(NamedTuple):
    """What a share is bound to by its seal."""

    header: Header
    model: str
    nonce: bytes
    public: bytes

    def seal(self, share: bytes, key: bytes, party: ShareParty) -> bytes:
        """Seal a share to a server's public key; `ValueError` for a key that cannot be sealed to."""
        return _SUITE.encrypt(share, X25519PublicKey.from_public_bytes(key), info=self._info(party))

    def open(self, sealed: bytes, key: X25519PrivateKey, party: ShareParty) -> bytes:
        """Open a share; empty if it was sealed to another key, party, round, nonce or public share."""
        try:
            return _SUITE.decrypt(sealed, key, info=self._info(party))
        except InvalidTag:
            return b""

    def _info(self, party: ShareParty) -> bytes:
        return msgspec.msgpack.encode((_PURPOSE, party.value, *self))


def share_context(digest: bytes) -> bytes:
    """Return the context of a round's proofs, by the digest of its publication: no share verifies in another round."""
    return _CONTEXT + digest


class OpeningAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The leader's answer to an opening: for each report its verifier share, and joint seed, or empty bytes."""

    answers: list[bytes]


class Closing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The helper's decisions about the reports of an opening, and its share of their sum, with its noise."""

    header: Header
    opening: bytes  # SHA-256 of the opening's body
    decisions: bytes  # a `Decision` for each report
    share: bytes  # the helper's share of the cells, in steps, with its noise; empty if it accepted nobody
    n_unopened: int  # reports that are not in the opening: the helper's share does not open, or is none


def decode_closing(body: bytes | bytearray) -> Closing:
    """Parse a closing, and refuse other bytes."""
    try:
        return msgspec.msgpack.decode(body, type=cache_decoder(Closing))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BatchRefused("this is not a closing", remedy="send what the shuffler makes") from error


def decode_opening_answer(body: bytes) -> OpeningAnswer | None:
    """Parse the leader's answer; None for other bytes."""
    try:
        return msgspec.msgpack.decode(body, type=cache_decoder(OpeningAnswer))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
