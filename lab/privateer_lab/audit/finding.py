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
    # epsilon that is proved at delta; None where nothing is claimed but a law, and for a channel, which tells something
    # or nothing
    lower_bound: float | None
    confidence: float | None  # with which all lower bounds and laws of a run hold together; None for a channel
    samples: int
    verdict: Literal["holds", "broken"]
    unsafe: bool = False  # whether the claim is a paper's that the accountant does not confirm
    # of a part: how likely its observations, or stranger ones, are by the law that it must have (a p-value)
    law: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the claim stands."""
        return self.verdict == "holds"


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An audit as `privateer audit --json` writes it."""

    format: str
    # privateer, at: the version that attacked itself, and when, in UTC
    privateer: str
    at: datetime
    holds: bool
    broken: tuple[str, ...]
    unsafe: tuple[str, ...]
    attacks: int
    false_alarm: float  # chance that true claims are reported as broken
    findings: tuple[AuditFinding, ...]
