"""What ends a trial before its last look. Every rule is a function of releases."""

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.findings import Findings


def stops(found: Findings, spec: TrialSpec) -> str:
    """Return the first rule of the spec that holds; empty if none does."""
    return next((rule for rule in spec.algorithm.stop if _holds(rule, found, spec)), "")


def _holds(rule: str, found: Findings, spec: TrialSpec) -> bool:
    if rule == "decided":
        return bool(found.decided.all())
    if rule == "best":
        return bool(found.sure.all())
    matters = spec.smallest
    ends = np.abs(found.intervals[..., 1:])
    return matters is not None and bool((ends < matters).all())
