"""Findings of an audit, as ``privateer audit --json`` writes them."""

from datetime import datetime
from typing import Final, Literal

import msgspec

FORMAT: Final = "privateer/audit/1"


class AuditFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding of one attack."""

    attack: str
    mechanism: str  # class of the mechanism, or name of the algorithm; `CHANNELS` for a channel
    model: str
    calibration: str
    epsilon: float | None
    delta: float | None
    # lower bound of epsilon at delta; None if only a law is claimed, and for a channel
    lower_bound: float | None
    confidence: float | None  # of all lower bounds and laws of a run together; None for a channel
    samples: int
    verdict: Literal["holds", "broken"]
    unsafe: bool = False  # whether the claim is a paper's that the accountant does not confirm
    # of a part: p-value of its observations under the law that it must have
    law: float | None = None

    @property
    def holds(self) -> bool:
        """Whether no attack broke the claim."""
        return self.verdict == "holds"


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An audit as `privateer audit --json` writes it."""

    format: str
    # privateer, at: the audited version, and the time in UTC
    privateer: str
    at: datetime
    holds: bool
    broken: tuple[str, ...]
    unsafe: tuple[str, ...]
    attacks: int
    false_alarm: float  # probability that any true claim is reported as broken
    findings: tuple[AuditFinding, ...]
