"""What a trial decides, and why: of every effect, and of what it recommends."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.result import Effect, Ground, reason_of
from privateer_core.result import Reason as Why
from privateer_server.algorithms.trial.effects import AverageEffects, Reason
from privateer_server.algorithms.trial.findings import Findings

Array = NDArray[np.float64]
_DIGITS: Final = 6
_UNKNOWN: Final[dict[Reason, Why]] = {
    Reason.FEW: "too few people beside the noise",
    Reason.SHARE: "its share of people is not told from 0",
    Reason.LOOK: "too few people since the last look",
}


def decisions(found: Findings, spec: TrialSpec) -> tuple[Effect, ...]:
    """Return every effect by segment, then the averages, in units of rewards: each with its decision and the reason."""
    return (*_by_segment(found, spec), *_averages(found, spec))


def _by_segment(found: Findings, spec: TrialSpec) -> Iterator[Effect]:
    one, unit = found.effects, 2 * spec.reward.half_range
    assert one is not None
    called = one.p_value if spec.algorithm.correction == "none" else one.adjusted
    tested = called <= spec.algorithm.level
    for k, a, _ in spec.effects():
        cell = (k, a - 1)
        ends = _ends(one.low[cell], one.high[cell])
        share = _ends(one.contribution_low[cell], one.contribution_high[cell])
        why = _why(Reason(int(one.reason[cell])), ends, share, tested=bool(tested[cell]))
        group = spec.segment_names[k] if spec.segment_count > 1 else None
        value, low, high = (rounded(unit * part[cell]) for part in (one.estimate, one.low, one.high))
        yield Effect(spec.options[a], group, value, low, high, why)


def _why(nothing: Reason, ends: tuple[float, float], share: tuple[float, float], *, tested: bool) -> Why:
    """Return the reason of one effect; where its share is not known, what it adds to the average has a side."""
    if nothing is Reason.SHARE and tested and (share[0] > 0 or share[1] < 0):
        return reason_of(*share, decided=True)
    return _UNKNOWN.get(nothing) or reason_of(*ends, decided=tested)


def _averages(found: Findings, spec: TrialSpec) -> Iterator[Effect]:
    one, unit = found.average, 2 * spec.reward.half_range
    if one is None:
        return
    for a, _ in spec.average_effects():
        low, high, tested = one.low[a - 1], one.high[a - 1], bool(one.adjusted[a - 1] <= spec.algorithm.level)
        known = math.isfinite(low) and math.isfinite(high)
        why = reason_of(low, high, decided=tested) if known else _UNKNOWN[Reason.FEW]
        value, lower, upper = (rounded(unit * part) for part in (one.estimate[a - 1], low, high))
        yield Effect(spec.options[a], None, value, lower, upper, why)


def ground_in(found: Findings, segment: int) -> Ground:
    """Return what the recommendation for a segment rests on."""
    one = found.effects
    assert one is not None
    if found.sure[segment]:
        return "decided against all other options"
    return _ground(int(found.best[segment]), one.estimate[segment], found.decided[segment])


def ground(found: Findings) -> Ground:
    """Return what the recommendation rests on if everybody gets the same."""
    average: AverageEffects | None = found.average
    if average is None:
        return ground_in(found, 0)
    return _ground(found.constant, average.estimate, average.decided)


def _ground(best: int, effects: Array, decided: NDArray[np.bool_]) -> Ground:
    """Return what it rests on that an arm looks best; effects of K treatments, (K,), and which are decided."""
    if np.isnan(effects).all() and not decided.any():
        return "too few people to say"
    if best == 0:
        worse = decided & (effects < 0)
        return "decided against all other options" if worse.all() else "ahead, and not decided"
    if not decided[best - 1] or effects[best - 1] < 0:
        return "ahead, and not decided"
    return "decided against all other options" if len(effects) == 1 else "decided against the control alone"


def _ends(low: float, high: float) -> tuple[float, float]:
    return float(low), float(high)


def rounded(value: float) -> float | None:
    """Round a figure for people; None where there is none."""
    return round(float(value), _DIGITS) if math.isfinite(value) else None
