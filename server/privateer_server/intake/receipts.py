"""Receipts, which say what became of the reports of a request; and the batches that shufflers deliver."""

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from privateer_core.errors import ReportRefused
from privateer_core.prepared_types import prepared
from privateer_core.wire.batch import BatchAnswer
from privateer_core.wire.envelope import Envelope
from privateer_server.store.records import ShufflerKey


@dataclass(frozen=True)
class Delivery:
    """A batch as it came from a shuffler."""

    envelope: Envelope  # its reports
    digest: bytes  # SHA-256 of its bytes, by which the server knows it when it comes again
    # closer, signed_at: who signed it, and when that was, in seconds since 1970
    closer: ShufflerKey
    signed_at: float


@dataclass
class Receipt:
    """The outcome of the reports of one request."""

    # accepted, refused: reports counted, and turned away by reason
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    problem: ReportRefused | None = None  # why the first of them was turned away
    closed: bool = False  # whether the round takes no further batch
    again: bool = False  # whether this is a batch that was counted before; the receipt is then the one that it had

    @classmethod
    def read(cls, answer: bytes) -> "Receipt":
        """Read the receipt that an earlier delivery of the same batch had."""
        given = msgspec.json.decode(answer, type=prepared(BatchAnswer))
        return cls(given.accepted, Counter(given.refused), closed=given.closed, again=True)

    @property
    def answer(self) -> bytes:
        """The answer to the shuffler, as JSON."""
        return msgspec.json.encode(BatchAnswer(self.accepted, dict(self.refused), self.closed))

    def refuse(self, problem: ReportRefused, count: int) -> None:
        """Note ``count`` reports as refused."""
        if count:
            self.refused[problem.slug] += count
            self.problem = self.problem or problem
