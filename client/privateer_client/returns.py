"""Coming back: in which period a report falls, and what a device holds a server to from its first report on."""

import math

import msgspec

from privateer_core.spec import Spec
from privateer_core.terms import Terms


def period_of(spec: Spec, now: float) -> int:
    """Return the number of the calendar's period of reports; 0 where a person reports once in all."""
    table = spec.experiment
    return math.floor(now / table.report_period) if table.reports_per_person > 1 else 0


def pinned(spec: Spec, terms: Terms) -> str:
    """Return what must be the same for all reports of a person that share a promise; empty where nothing is shared."""
    if spec.reports == 1:
        return ""
    table, share = spec.experiment, terms.allotment
    parts = {
        "reports": table.reports_per_person,
        "period": table.report_period,
        "model": terms.model,
        "epsilon": terms.epsilon if math.isfinite(terms.epsilon) else None,
        "delta": terms.delta,
        "each": share and share.each,
        "arms": spec.privacy.arms,
        "honest_fraction": spec.privacy.honest_fraction,
    }
    return msgspec.json.encode(parts, order="deterministic").decode()
