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
_KEY_ID_CACHE_SIZE: Final = 1024
"""Number of keys whose ids are cached, since every report is compared with an id."""
_NUMBER_LIMIT: Final = 1 << 63
"""Versions and deadlines are below this limit, since databases store them."""
ASKS_HEADER: Final = "Privateer-Asks"
ASKS_PUBLISHED: Final = "published"
ASKS_NOBODY: Final = "nobody"
"""A header of the answer that carries a publication, and its values: the round asks for reports as published, or it
takes only reports on earlier choices and asks for no new ones, since a pause has begun."""
SHUFFLED_MODELS: Final = frozenset({"shuffle"})
"""Trust models whose reports go to the shuffler's endpoint. Those of all other models go to the server's."""
_MODEL_REGEX: Final = re.compile(r"[a-z]{1,16}")


class Round(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The public facts of a round that a shuffler needs."""

    # experiment, version: name of the experiment, and the policy version that lives for this round (from 1)
    experiment: str
    version: int
    model: str  # trust model: a short lower-case word, the name of a row of `privateer_core.privacy.trust.TRUST`
    batch_size: int  # number of participants whose reports close the round. 0: the experiment is over.
    sealed_size: int  # bytes of one sealed message, the same for every participant and every value
    public_key: bytes  # the server's HPKE public key (X25519, 32 raw bytes)
    # sealed messages of a participant, sent at once. The shuffler permutes the messages of all participants.
    messages: int = 1
    least: int = 0  # minimum number of participants for closing the round at its deadline
    deadline: int = 0  # in seconds since 1970. 0: the round waits for the whole batch.
    # number of kinds of messages. A participant sends equally many of each kind, kind after kind. The shuffler permutes
    # each kind by itself, so that no participant can send more messages of a kind than their share.
    groups: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.version < _NUMBER_LIMIT or self.batch_size < 0 or self.sealed_size < 1 or self.messages < 1:
            raise ValueError("versions count from 1, a batch is not negative, a report is not empty")
        is_in_range = 0 <= self.least <= self.batch_size and 0 <= self.deadline < _NUMBER_LIMIT
        if not is_in_range or (self.deadline and not self.least):
            raise ValueError("a deadline needs a least number of people, which is at most the batch")
        if self.groups < 1 or self.messages % self.groups:
            raise ValueError("a person sends equally many messages of each kind")
        if not _MODEL_REGEX.fullmatch(self.model) or len(self.public_key) != PUBLIC_KEY_SIZE:
            raise ValueError("the trust model is not a short lower-case word, or the public key has a wrong size")

    @property
    def endpoint(self) -> Literal["server", "shuffler"]:
        """The service that takes the reports of this round."""
        return "shuffler" if self.model in SHUFFLED_MODELS else "server"

    @property
    def fewest(self) -> int:
        """Minimum number of participants whose reports the round may release."""
        return self.least if self.deadline else self.batch_size

    @property
    def messages_of_kind(self) -> int:
        """Number of messages of each kind that one participant sends."""
        return self.messages // self.groups

    @property
    def report_size(self) -> int:
        """Bytes that one participant sends."""
        return self.messages * self.sealed_size

    def is_due(self, now: float, n_participants: int) -> bool:
        """Whether the round may close with ``n_participants`` reports, at a time in seconds since 1970."""
        return 0 < self.batch_size <= n_participants or (0 < self.deadline <= now and n_participants >= self.least)

    @property
    def key_id(self) -> bytes:
        """First 8 bytes of the SHA-256 of the public key. It is derived, so that an id never names two keys."""
        return _key_id(self.public_key)


@lru_cache(maxsize=_KEY_ID_CACHE_SIZE)
def _key_id(public_key: bytes) -> bytes:
    return hashlib.sha256(public_key).digest()[:KEY_ID_SIZE]


class Drain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The draining phase after the horizon, in which a round takes only reports on earlier choices."""

    until: int  # end of the experiment, in seconds since 1970
    policy: bytes  # msgpack of the policy for new choices, which are not reported

    def __post_init__(self) -> None:
        if not 0 < self.until < _NUMBER_LIMIT:
            raise ValueError("the end is a time in seconds since 1970")


class Publication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A round with its spec and policy, and the result so far."""

    round: Round  # the part that a shuffler needs, too
    # spec, policy: JSON and msgpack. This module does not look into them.
    spec: bytes
    policy: bytes
    result: bytes = b""  # msgpack of a `privateer_core.answer.Answer`, or empty if publications carry none
    drain: Drain | None = None  # set once the round takes only late reports

    def __post_init__(self) -> None:
        if self.drain is not None and not self.round.batch_size:
            raise ValueError("a round that takes late reports asks for some")


_DECODER: Final = msgspec.msgpack.Decoder(prepared(Publication))


def encode_publication(publication: Publication) -> bytes:
    """Serialize a publication. The bytes are stored and served as they are."""
    return msgspec.msgpack.encode(publication)


def decode_publication(body: bytes) -> Publication:
    """Parse a publication, and refuse other bytes."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("this is not a publication", remedy="fetch the policy again as application/msgpack") from error


def digest(body: bytes) -> bytes:
    """Return the SHA-256 of an encoded publication."""
    # It is not shortened, since devices rely on its collision resistance.
    return hashlib.sha256(body).digest()
