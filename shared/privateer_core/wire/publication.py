"""The publication of a round, one immutable document named by its digest, and the envelopes of reports for it.

A device makes its report for a digest, and the shuffler takes only reports made for the digest that it fetched itself.
So a server cannot show one device another key, policy or batch size than the rest (which would undo the shuffling),
nor promise a batch to the devices and ask the shuffler for a smaller one.
"""

import hashlib
import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from privateer_core.errors import (
    Malformed,
    RoundClosed,
    RoundUnknown,
    SenderRefused,
    WrongDigest,
    WrongEndpoint,
    WrongKey,
    WrongSize,
)
from privateer_core.prepared_types import cache_decoder

DIGEST_SIZE: Final = 32
KEY_ID_SIZE: Final = 8
PUBLIC_KEY_SIZE: Final = 32
_KEY_ID_CACHE_SIZE: Final = 1024
"""Number of keys whose ids are cached, since every report is compared with an id."""
_NUMBER_LIMIT: Final = 1 << 63
"""Versions and deadlines are below this limit, since databases store them."""
MESSAGES_MAX: Final = 1 << 17
"""Largest number of messages that a device sends for a report."""
ASKS_HEADER: Final = "Privateer-Asks"
ASKS_PUBLISHED: Final = "published"
ASKS_NOBODY: Final = "nobody"
"""A header of the answer that carries a publication, and its values: the round asks for reports as published, or it
takes only reports on earlier choices and asks for no new ones, since a pause has begun."""
SHARED_MODEL: Final = "split"
"""Trust model whose reports are shares of two servers, of which the shuffler is one (`privateer_core.wire.shares`)."""
SHUFFLED_MODELS: Final = frozenset({"shuffle", SHARED_MODEL})
"""Trust models whose reports go to the shuffler's endpoint. Those of all other models go to the server's."""
NONCE_SIZE: Final = 16
"""Bytes with which a report in shares begins, and by which it counts once."""
_MODEL_REGEX: Final = re.compile(r"[a-z]{1,16}")
MEDIA_TYPE: Final = "application/msgpack"
REPORTS_PER_BODY_MAX: Final = 1000
"""Number of participants whose reports one request may carry. A device sends one report, a trusted sender more."""
_PURPOSE: Final = "privateer/report/1"
SENDER_HEADER: Final = "privateer-sender"  # of the signature of a trusted sender
SENDER_REMEDY: Final = "sign with a key in PRIVATEER_SENDER_KEYS, or send one person's report at a time"


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
    def is_shared(self) -> bool:
        """Whether reports are shares of two servers."""
        return self.model == SHARED_MODEL

    @property
    def identity_size(self) -> int:
        """First bytes of a message by which it counts once, whatever else it has."""
        return NONCE_SIZE if self.is_shared else self.sealed_size

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


_PUBLICATION_DECODER: Final = msgspec.msgpack.Decoder(cache_decoder(Publication))


def encode_publication(publication: Publication) -> bytes:
    """Serialize a publication. The bytes are stored and served as they are."""
    return msgspec.msgpack.encode(publication)


def decode_publication(body: bytes) -> Publication:
    """Parse a publication, and refuse other bytes."""
    try:
        return _PUBLICATION_DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("this is not a publication", remedy="fetch the policy again as application/msgpack") from error


def digest(body: bytes) -> bytes:
    """Return the SHA-256 of an encoded publication."""
    # It is not shortened, since devices rely on its collision resistance.
    return hashlib.sha256(body).digest()


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The round that a report is made for. Two honest reports of one round have the same header."""

    experiment: str
    version: int
    key_id: bytes
    digest: bytes

    def __post_init__(self) -> None:
        if len(self.key_id) != KEY_ID_SIZE or len(self.digest) != DIGEST_SIZE or not 1 <= self.version < _NUMBER_LIMIT:
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


_ENVELOPE_DECODER: Final = msgspec.msgpack.Decoder(cache_decoder(Envelope))


def decode_envelope(body: bytes | bytearray) -> Envelope:
    """Parse an envelope, and refuse other bytes."""
    try:
        return _ENVELOPE_DECODER.decode(body)
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


def check_single_report(envelope: Envelope, round_: Round) -> None:
    """Refuse an unsigned upload with reports of several participants, so that a false participant costs a request."""
    if len(envelope.sealed) >= 2 * round_.report_size:
        detail = "an upload without a trusted sender's signature carries one person's report"
        raise SenderRefused(detail, field=SENDER_HEADER, remedy=SENDER_REMEDY)


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
