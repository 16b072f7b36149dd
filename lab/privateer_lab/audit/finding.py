"""Findings of an audit, as ``privateer audit --json`` writes them."""

from datetime import datetime
from typing import Final, Literal

import msgspec

FORMAT: Final = "privateer/audit/1"


class AuditFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding of one attack.

    Attributes
    ----------
    mechanism
        Class of the mechanism, or name of the algorithm; `CHANNELS` for a channel.
    lower_bound
        Epsilon that is proved at delta; None where nothing is claimed but a law, and for a channel, which tells
        something or nothing.
    confidence
        With which all lower bounds and laws of a run hold together; None for a channel.
    unsafe
        Whether the claim is a paper's that the accountant does not confirm.
    law
        Of a part: how likely its observations, or stranger ones, are by the law that it must have (a p-value).
    """

    attack: str
    mechanism: str
    model: str
    calibration: str
    epsilon: float | None
    delta: float | None
    lower_bound: float | None
    confidence: float | None
    samples: int
    verdict: Literal["holds", "broken"]
    unsafe: bool = False
    law: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the claim stands."""
        return self.verdict == "holds"


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An audit as `privateer audit --json` writes it.

    Attributes
    ----------
    privateer, at
        The version that attacked itself, and when, in UTC.
    false_alarm
        Chance that true claims are reported as broken.
    """

    format: str
    privateer: str
    at: datetime
    holds: bool
    broken: tuple[str, ...]
    unsafe: tuple[str, ...]
    attacks: int
    false_alarm: float
    findings: tuple[AuditFinding, ...]
