"""What a trial decides, and why: of every effect, and of what it recommends."""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Effect, reason_of
from privateer_core.answer.estimates import Reason as Why
from privateer_core.answer.parts import Ground
from privateer_server.algorithms.trial.effects import Reason
from privateer_server.algorithms.trial.findings import Called, Findings

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
    one, called = found.effects, found.called
    assert one is not None
    assert called is not None
    for k, a, _ in spec.effects():
        cell = (k, a - 1)
        share = float(one.contribution_low[cell]), float(one.contribution_high[cell])
        why = _why(called, cell, _UNKNOWN.get(Reason(int(one.reason[cell]))), share)
        group = spec.segment_names[k] if spec.segment_count > 1 else None
        yield _effect(spec, a, group, called, cell, why)


def _averages(found: Findings, spec: TrialSpec) -> Iterator[Effect]:
    called = found.average_called
    if called is None or found.average is None:
        return
    for a, _ in spec.average_effects():
        nothing = None if math.isfinite(found.average.estimate[a - 1]) else _UNKNOWN[Reason.FEW]
        why = _why(called, (a - 1,), nothing, (math.nan, math.nan))
        yield _effect(spec, a, None, called, (a - 1,), why)


def _why(called: Called, cell: tuple[int, ...], nothing: Why | None, share: tuple[float, float]) -> Why:
    """Return the reason of one effect; ``nothing`` is why this look has no interval of it, if it has none.

    What was called before stands with the interval of its last look; where an effect's scale is not known, what it
    adds to the average has a side.
    """
    ends, tested = called.intervals[cell][1:], bool(called.tested[cell])
    if nothing is None or (tested and np.isfinite(ends).all()):
        return reason_of(float(ends[0]), float(ends[1]), decided=tested)
    return reason_of(*share, decided=True) if called.decided[cell] else nothing


def _effect(spec: TrialSpec, arm: int, group: str | None, called: Called, cell: tuple[int, ...], why: Why) -> Effect:
    """Return an effect with the figures of the last look that had some, unless nothing may be said of it now."""
    if why in _UNKNOWN.values():
        return Effect(spec.options[arm], group, None, None, None, why)
    value, low, high = (rounded(2 * spec.reward.half_range * one) for one in called.intervals[cell].tolist())
    people = None if value is None else int(called.people[cell])
    return Effect(spec.options[arm], group, value, low, high, why, people)


def ground_in(found: Findings, segment: int) -> Ground:
    """Return what the recommendation for a segment rests on."""
    called, one = found.called, found.effects
    assert called is not None
    assert one is not None
    if found.sure[segment]:
        return "decided against all other options"
    said = np.isfinite(one.estimate[segment]) | called.tested[segment]
    effects = np.where(said, called.intervals[segment, :, 0], np.nan)
    return _ground(int(found.best[segment]), effects, called.decided[segment])


def ground(found: Findings) -> Ground:
    """Return what the recommendation rests on if everybody gets the same."""
    called = found.average_called
    if called is None:
        return ground_in(found, 0)
    return _ground(found.constant, called.intervals[:, 0], called.decided)


def _ground(best: int, effects: Array, decided: NDArray[np.bool_]) -> Ground:
    """Return what it rests on that an arm looks best; effects of K treatments, (K,), and which are decided."""
    if np.isnan(effects).all() and not decided.any():
        return "too few people to say"
    if best == 0:
        return "decided against all other options" if (decided & (effects < 0)).all() else "ahead, and not decided"
    if not decided[best - 1] or effects[best - 1] < 0:
        return "ahead, and not decided"
    return "decided against all other options" if len(effects) == 1 else "decided against the control alone"


def rounded(value: float) -> float | None:
    """Round a figure for people; None where there is none."""
    return round(float(value), _DIGITS) if math.isfinite(value) else None
