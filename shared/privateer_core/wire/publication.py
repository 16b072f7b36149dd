"""The publication of a round: one immutable document, named by its digest.

A device makes its report for a digest, and the shuffler takes only reports made for the digest that it fetched itself.
So a server cannot show one device another key, policy or batch size than the rest (which would undo the shuffling),
nor promise a batch to the devices and ask the shuffler for a smaller one.
"""

import hashlib
import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from privateer_core.errors import Malformed
from privateer_core.prepared_types import prepared

DIGEST_SIZE: Final = 32
KEY_ID_SIZE: Final = 8
PUBLIC_KEY_SIZE: Final = 32
_KEYS_MAX: Final = 1024
"""Keys whose ids are kept, since every report is compared with one."""
_NUMBERS: Final = 1 << 63
"""Versions and deadlines are smaller, since databases keep them."""
ASKS_HEADER: Final = "Privateer-Asks"
ASKS_PUBLISHED: Final = "published"
ASKS_NOBODY: Final = "nobody"
"""A header of the answer that carries a publication, and what it may say: the round asks as its publication says, or it
only takes reports of those who chose before, and who comes now is asked nothing, since a pause has begun."""
SHUFFLED: Final = frozenset({"shuffle"})
"""Trust models whose reports go to the shuffler's endpoint. Those of all other models go to the server's."""
_MODEL: Final = re.compile(r"[a-z]{1,16}")


class Round(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The public facts of a round that a shuffler needs."""

    # experiment, version: name of the experiment, and the policy version that lives for this round (from 1)
    experiment: str
    version: int
    model: str  # trust model: a short lower-case word, the name of a row of `privateer_core.privacy.trust.TRUST`
    batch: int  # number of people whose reports close the round. 0: the experiment is over and asks for no reports.
    sealed_size: int  # bytes of one sealed message, the same for every person and every value
    public_key: bytes  # the server's HPKE public key (X25519, 32 raw bytes)
    # sealed messages of one person, who sends them all at once. The shuffler permutes those of all people.
    messages: int = 1
    least: int = 0  # fewest people with whose reports the round may close at its deadline
    deadline: int = 0  # in seconds since 1970. 0: the round waits for the whole batch.
    # kinds of messages. A person sends equally many of each, kind after kind. The shuffler permutes those of a kind
    # among themselves, so that nobody can send more of one than their share.
    groups: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.version < _NUMBERS or self.batch < 0 or self.sealed_size < 1 or self.messages < 1:
            raise ValueError("versions count from 1, a batch is not negative, a report is not empty")
        if not (
            0 <= self.least <= self.batch and 0 <= self.deadline < _NUMBERS and (self.least > 0 or self.deadline == 0)
        ):
            raise ValueError("a deadline needs a least number of people, which is at most the batch")
        if self.groups < 1 or self.messages % self.groups:
            raise ValueError("a person sends equally many messages of each kind")
        if not _MODEL.fullmatch(self.model) or len(self.public_key) != PUBLIC_KEY_SIZE:
            raise ValueError("the trust model is not a short lower-case word, or the public key has a wrong size")

    @property
    def endpoint(self) -> Literal["server", "shuffler"]:
        """The service that takes the reports of this round."""
        return "shuffler" if self.model in SHUFFLED else "server"

    @property
    def fewest(self) -> int:
        """The fewest people whose reports the round may release."""
        return self.least if self.deadline else self.batch

    @property
    def messages_of_kind(self) -> int:
        """Messages of each kind that one person sends."""
        return self.messages // self.groups

    @property
    def report_size(self) -> int:
        """Bytes that one person sends."""
        return self.messages * self.sealed_size

    def is_due(self, now: float, people: int) -> bool:
        """Whether the round may close with the reports of ``people``, at a time in seconds since 1970."""
        return 0 < self.batch <= people or (0 < self.deadline <= now and people >= self.least)

    @property
    def key_id(self) -> bytes:
        """First 8 bytes of the SHA-256 of the public key. It is derived, so that one id never names two keys."""
        return _key_id(self.public_key)


@lru_cache(maxsize=_KEYS_MAX)
def _key_id(public_key: bytes) -> bytes:
    return hashlib.sha256(public_key).digest()[:KEY_ID_SIZE]


class Drain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a round is for once the horizon is reached: it takes the reports of those who chose before."""

    until: int  # when the experiment is over, in seconds since 1970
    policy: bytes  # msgpack of the policy by which those decide who come now: they are not asked for a report

    def __post_init__(self) -> None:
        if not 0 < self.until < _NUMBERS:
            raise ValueError("the end is a time in seconds since 1970")


class Publication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A round, the spec and the policy it belongs to, and the result so far."""

    round: Round  # the facts that a shuffler needs, too
    # spec, policy: JSON and msgpack. This module does not look into them.
    spec: bytes
    policy: bytes
    result: bytes = b""  # msgpack of a `privateer_core.answer.Answer`, or empty if publications carry none
    drain: Drain | None = None  # given once deciding has ended: the round takes late reports alone

    def __post_init__(self) -> None:
        if self.drain is not None and not self.round.batch:
            raise ValueError("a round that takes late reports asks for some")


_DECODER: Final = msgspec.msgpack.Decoder(prepared(Publication))


def encode_publication(publication: Publication) -> bytes:
    """Serialize a publication. The bytes are stored and served as they are."""
    return msgspec.msgpack.encode(publication)


def decode_publication(body: bytes) -> Publication:
    """Parse a publication."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("this is not a publication", remedy="fetch the policy again as application/msgpack") from error


def digest(body: bytes) -> bytes:
    """Return the SHA-256 of an encoded publication."""
    # It is not shortened: devices rely on nobody finding two publications of one digest.
    return hashlib.sha256(body).digest()
