"""Receipts for the reports of a request, and the batches that shufflers deliver."""

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from privateer_core.errors import ReportRefused
from privateer_core.prepared_types import cache_decoder
from privateer_core.wire.batch import BatchAnswer
from privateer_core.wire.publication import Envelope
from privateer_server.intake.leader import JoinedBatch
from privateer_server.store.records import ShufflerKey


@dataclass(frozen=True)
class Delivery:
    """A batch as delivered by a shuffler."""

    envelope: Envelope  # its reports
    digest: bytes  # SHA-256 of its bytes, by which the server recognizes a repeated batch
    # shuffler_key, signed_at: the shuffler that signed the batch, and when, in seconds since 1970
    shuffler_key: ShufflerKey
    signed_at: float
    joined: JoinedBatch | None = None  # the sum of its reports if they are shares, which no envelope has


@dataclass
class Receipt:
    """The result of the reports of one request."""

    # accepted, refused: the numbers of counted reports, and of refused reports by reason
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    first_refusal: ReportRefused | None = None  # the reason of the first refused report
    is_round_closed: bool = False  # whether the round takes no further batch
    is_repeat: bool = False  # whether this batch was counted before; the receipt is then the earlier receipt

    @classmethod
    def from_answer(cls, answer: bytes) -> "Receipt":
        """Return the receipt of an earlier delivery of the same batch from its answer."""
        reply = msgspec.json.decode(answer, type=cache_decoder(BatchAnswer))
        return cls(reply.accepted, Counter(reply.refused), is_round_closed=reply.closed, is_repeat=True)

    @property
    def answer(self) -> bytes:
        """The JSON answer to the shuffler."""
        return msgspec.json.encode(BatchAnswer(self.accepted, dict(self.refused), self.is_round_closed))

    def refuse(self, reason: ReportRefused, count: int) -> None:
        """Record ``count`` reports as refused for a reason."""
        if count:
            self.refused[reason.slug] += count
            self.first_refusal = self.first_refusal or reason
