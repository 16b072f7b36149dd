"""Decisions of a trial: from its evidence to effects, why each is decided, and the stop; rewards are in [0, 1]."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Effect, Reason, bounds_in_words, reason_of
from privateer_core.answer.parts import Ground
from privateer_server.algorithms.trial.confidence_sequence import ConfidenceLimits, ConfidenceSequence, asked_limits
from privateer_server.algorithms.trial.corrections import Correction, corrected
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.reasons import ESTIMATED, ReasonCode
from privateer_server.algorithms.trial.standing_decisions import StandingDecisions, decided_arms, leader
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import (
    AverageEffects,
    SegmentEffects,
    average_effects,
    effects,
)

Array = NDArray[np.float64]

_CORRECTIONS: Final[dict[str, Correction]] = {"holm": "holm", "bh": "bh", "none": "holm"}
DIGITS: Final = 6
_NAME: Final = 40
"""Characters of an arm's name in a remark."""
_NARROWER: Final = 0.5
"""Bounds that are worth naming: no wider than so much of those of the spec."""
UNKNOWN: Final[dict[ReasonCode, Reason]] = {
    ReasonCode.FEW: Reason.FEW_PEOPLE,
    ReasonCode.NOBODY: Reason.NOBODY,
    ReasonCode.NOISE: Reason.NOISE,
    ReasonCode.RARE: Reason.RARE,
    ReasonCode.HEAVY: Reason.HEAVY_TAIL,
    ReasonCode.SHARE: Reason.SHARE,
    ReasonCode.LOOK: Reason.NOT_LOOKED_AT,
    ReasonCode.UNRESOLVED: Reason.UNRESOLVED,
}
_REMARKS: Final = {
    ReasonCode.FEW: "{arm} counts as {people}, and an interval needs {needed}",
    ReasonCode.NOBODY: "{arm} counts as {people}{noise}: see whether its outcomes are such that count",
    ReasonCode.NOISE: "{arm} counts as {people}{noise}, and an interval needs ten times the noise: ask more people",
    ReasonCode.RARE: (
        "{own} with {option} and {other} with {base}; an interval needs {rare_needed} in each at the rate of both"
    ),
    ReasonCode.HEAVY: (
        "an interval needs the mean of each arm to rest on as much as {rare_needed} equal rewards, not on {bearers}"
    ),
    ReasonCode.SHARE: "segments.shares declares it, or more people",
    ReasonCode.SMALL: "effects that matter will not be found",
    ReasonCode.UNRESOLVED: "if they vary at all, bounds of {bounds} tell by how much",
    ReasonCode.HIDDEN: "noise hides how much rewards vary: bounds of {bounds} need less of it",
}
_OR_BOUNDS: Final = "; so do narrower bounds, if rewards are all near one of them"


@dataclass(frozen=True)
class TrialFindings:
    """Effects by segment and treatment (J, K), their averages (K,), and what follows from them at the last look."""

    # effects, called: by segment, and what is decided of each
    effects: SegmentEffects
    called: StandingDecisions
    # average, average_called: the same on average; None if everybody is one segment
    average: AverageEffects | None
    average_called: StandingDecisions | None
    given: NDArray[np.int64]  # shape (J,), int64: the arm that a segment gets when nobody is asked any more
    for_all: int  # the arm that is recommended if everybody gets the same
    sure: NDArray[np.bool_]  # shape (J,): whether the given arm is better than all others, in all segments at once
    inhabited: NDArray[np.bool_]  # shape (J,): whether anybody was counted in a segment

    @classmethod
    def of(cls, state: TrialState, spec: TrialSpec) -> "TrialFindings":
        """Return what a state says that has seen a look."""
        evidence, section, size = state.evidence, spec.algorithm, spec.segment_count
        found = effects(evidence, state.asked, spec.smallest, _CORRECTIONS[section.correction])
        if state.line:
            found = _strict(found, state.line, _limits(state, spec), evidence.stable, _CORRECTIONS[section.correction])
        tested = found.p_value <= section.level if section.correction == "none" else found.decided
        share, people = (found.contribution_low, found.contribution_high), state.ratio.people
        called = StandingDecisions.of(_looks(state.path, _intervals(found), evidence), people, tested, share)
        average = average_effects(evidence, next(iter(state.everybody), None)) if size > 1 else None
        average_called = None
        if average:
            path, ends = _looks(state.average_path, _intervals(average), evidence), (average.low, average.high)
            average_called = StandingDecisions.of(path, people, average.decided, ends)
        # Precision weights: those of intervals forget an early decision where shares are extreme.
        ahead = np.concatenate([np.zeros((size, 1)), evidence.precise.difference], axis=1)
        averages = found.contribution.sum(axis=0) if average is None else average.estimate
        given, for_all = np.argmax(ahead, axis=1), leader(averages)
        if section.undecided == "control":
            given, for_all = decided_arms(called, average_called, ahead)
        inhabited = evidence.stable.somebody
        return cls(found, called, average, average_called, given, for_all, _sure(found, given), inhabited)

    @property
    def constant(self) -> int:
        """The arm that looks best if everybody gets the same."""
        return leader(self.effects.contribution.sum(axis=0) if self.average is None else self.average.estimate)

    @property
    def intervals(self) -> Array:
        """Estimates and interval ends at this look, (J, K, 3); nan where nothing is said."""
        return _intervals(self.effects)

    def average_intervals(self, treatments: int) -> Array:
        """Return the same of average effects, (K, 3)."""
        return np.full((treatments, 3), np.nan) if self.average is None else _intervals(self.average)


def _looks(path: Array, now: Array, evidence: TrialEvidence) -> Array:
    """Return the intervals of all looks; those of the last one may be on the path, or not yet."""
    return path if len(path) == evidence.looks else np.concatenate([path, now[None]])


def _intervals(found: SegmentEffects | AverageEffects) -> Array:
    stacked = np.stack([found.estimate, found.low, found.high], axis=-1)
    return np.where(np.isfinite(stacked).all(axis=-1, keepdims=True), stacked, np.nan)


def _limits(state: TrialState, spec: TrialSpec) -> ConfidenceLimits | None:
    """Return limits of the segments' shares of the people, with half of the level, where people are asked for them."""
    if state.members is None:
        return None
    people = spec.experiment.horizon * spec.questions[-1].share
    return asked_limits(state.members, spec.algorithm.level / 2, people * state.evidence.design.hit)


def _strict(
    found: SegmentEffects, line: ConfidenceSequence, asked: ConfidenceLimits | None, sums: Sums, correction: Correction
) -> SegmentEffects:
    """Return the effects with the intervals of a line, which need no gate."""
    limits, share = line.effect(asked), line.contribution()
    adjusted = corrected(line.p_value, sums, correction)
    return replace(
        found,
        estimate=limits.estimate,
        low=limits.low,
        high=limits.high,
        joint_low=np.full_like(limits.low, -np.inf),
        joint_high=np.full_like(limits.high, np.inf),
        contribution=share.estimate,
        contribution_low=share.low,
        contribution_high=share.high,
        # A line bounds rewards by their range, however they vary.
        reason=np.where(np.isin(found.reason, (*ESTIMATED, ReasonCode.UNRESOLVED)), ReasonCode.NONE, found.reason),
        p_value=line.p_value,
        adjusted=adjusted,
        decided=adjusted <= line.design.alpha,
    )


def _sure(found: SegmentEffects, best: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the joint interval of the best arm is above those of all others; the control's is 0 alone."""
    size = len(best)
    low = np.concatenate([np.zeros((size, 1)), np.nan_to_num(found.joint_low, nan=-np.inf)], axis=1)
    high = np.concatenate([np.zeros((size, 1)), np.nan_to_num(found.joint_high, nan=np.inf)], axis=1)
    rows = np.arange(size)
    own = low[rows, best]
    high[rows, best] = -np.inf
    return np.asarray(own > high.max(axis=1))


def decisions(state: TrialState, found: TrialFindings, spec: TrialSpec) -> tuple[Effect, ...]:
    """Return every effect by segment, then the averages, in units of rewards: each with its decision and the reason."""
    return tuple(_with_look(one, state.reported) for one in (*_by_segment(found, spec), *_averages(found, spec)))


def _by_segment(found: TrialFindings, spec: TrialSpec) -> Iterator[Effect]:
    one, called, unit = found.effects, found.called, spec.reward.span
    contributions = (found.average or one).contribution
    for k, a, _ in spec.effects():
        if not found.inhabited[k]:
            continue
        cell, group = (k, a - 1), spec.segment_names[k] if spec.segment_count > 1 else None
        share = float(one.contribution_low[cell]), float(one.contribution_high[cell])
        code = ReasonCode(int(one.reason[cell]))
        effect = _effect(spec, a, group, called, cell, _why(called, cell, UNKNOWN.get(code), share), one.rough)
        detectable = unit * float(one.detectable[cell])
        yield msgspec.structs.replace(
            _remarked(effect, code, one, cell, spec),
            p_value=rounded_up(one.p_value[cell]),
            detectable=rounded(detectable, detectable),
            contribution=rounded(unit * contributions[cell], detectable),
        )


def _averages(found: TrialFindings, spec: TrialSpec) -> Iterator[Effect]:
    one, called, unit = found.average, found.average_called, spec.reward.span
    if one is None or called is None:
        return
    for a, _ in spec.average_effects():
        cell = (a - 1,)
        code = ReasonCode(int(one.reason[cell]))
        nothing = None if math.isfinite(one.estimate[cell]) else UNKNOWN.get(code, UNKNOWN[ReasonCode.LOOK])
        why = _why(called, cell, nothing, (math.nan, math.nan))
        effect = _effect(spec, a, None, called, cell, why, one.rough)
        detectable = unit * float(one.detectable[cell])
        yield msgspec.structs.replace(
            _remarked(effect, code, one, cell, spec),
            p_value=rounded_up(one.p_value[cell]),
            detectable=rounded(detectable, detectable),
        )


def _remarked(
    effect: Effect, code: ReasonCode, found: SegmentEffects | AverageEffects, cell: tuple[int, ...], spec: TrialSpec
) -> Effect:
    """Return an effect with what to do about it, if it is not decided, and with the bounds that would tell more."""
    low, high = (spec.reward.low + spec.reward.span * found.bounds[cell]).tolist()
    is_about_bounds = code in (ReasonCode.UNRESOLVED, ReasonCode.HIDDEN)
    if effect.is_decided or (is_about_bounds and high - low > _NARROWER * spec.reward.span):
        return effect
    option, base = effect.option[:_NAME], spec.options[0][:_NAME]
    figures = found.counts.at(*cell).in_words((option, base)) | {"bounds": bounds_in_words(low, high)}
    remark = _REMARKS.get(code, "").format(**figures, option=option, base=base)
    remark += _OR_BOUNDS if code is ReasonCode.NOISE and spec.numeric else ""
    return msgspec.structs.replace(effect, remark=remark, bounds=(low, high) if is_about_bounds else None)


def _with_look(effect: Effect, reported: int) -> Effect:
    """Return an effect with a remark if its figures are not those of the last look."""
    if effect.people is None or effect.people == reported:
        return effect
    since = f"when {effect.people:,} people had reported; too few since to say more"
    remark = "; ".join(filter(None, (effect.remark, since)))
    return msgspec.structs.replace(effect, remark=remark)


def _why(
    called: StandingDecisions, cell: tuple[int, ...], nothing: Reason | None, share: tuple[float, float]
) -> Reason:
    """Return the reason of one effect; ``nothing`` is why this look has no interval of it, if it has none.

    What was called before stands with the interval of its last look; where an effect's scale is not known, what it
    adds to the average has a side.
    """
    ends, tested = called.intervals[cell][1:], bool(called.tested[cell])
    if nothing is None or (tested and np.isfinite(ends).all()):
        return reason_of(float(ends[0]), float(ends[1]), decided=tested)
    return reason_of(*share, decided=True) if called.decided[cell] else nothing


def _effect(
    spec: TrialSpec,
    arm: int,
    group: str | None,
    called: StandingDecisions,
    cell: tuple[int, ...],
    why: Reason,
    rough: Array,
) -> Effect:
    """Return an effect with the figures of the last look that had some, unless nothing may be said of it now."""
    if why in (Reason.RARE, Reason.HEAVY_TAIL):
        estimate = spec.reward.span * float(rough[cell])
        return Effect(spec.options[arm], group, rounded(estimate, abs(estimate)), None, None, why)
    if why in UNKNOWN.values():
        return Effect(spec.options[arm], group, None, None, None, why)
    value, low, high = rounded_interval(spec.reward.span * called.intervals[cell])
    people = None if value is None else int(called.people[cell])
    return Effect(spec.options[arm], group, value, low, high, why, people)


def ground_in(found: TrialFindings, segment: int) -> Ground:
    """Return what the recommendation for a segment rests on."""
    called, arm, average = found.called, int(found.given[segment]), found.average_called
    if found.sure[segment]:
        return "decided against all other options"
    is_of_average = arm > 0 and average is not None and not called.better[segment, arm - 1]
    if is_of_average and average is not None and average.better[arm - 1]:
        return "decided on average alone"
    said = np.isfinite(found.effects.estimate[segment]) | called.tested[segment]
    effects = np.where(said, called.intervals[segment, :, 0], np.nan)
    return _ground(arm, effects, called.decided[segment])


def ground(found: TrialFindings) -> Ground:
    """Return what the recommendation rests on if everybody gets the same."""
    called = found.average_called
    if called is None:
        return ground_in(found, 0)
    return _ground(found.for_all, called.intervals[:, 0], called.decided)


def _ground(arm: int, effects: Array, decided: NDArray[np.bool_]) -> Ground:
    """Return what it rests on that everybody gets an arm; effects of K treatments, (K,), and which are decided."""
    if np.isnan(effects).all() and not decided.any():
        return "too few people to say"
    if arm == 0:
        if (decided & (effects < 0)).all():
            return "decided against all other options"
        is_ahead = bool((np.nan_to_num(effects) <= 0).all())
        return "ahead, and not decided" if is_ahead else "kept, as nothing is decided to be better"
    if not decided[arm - 1] or effects[arm - 1] < 0:
        return "ahead, and not decided"
    return "decided against all other options" if len(effects) == 1 else "decided against the control alone"


def rounded(value: float, scale: float = 1.0) -> float | None:
    """Round a figure for people, to a thousandth of what is small beside 1; None where there is none."""
    small = -math.floor(math.log10(scale)) if 0 < scale < 1 else 0
    return round(float(value), max(DIGITS, 3 + small)) if math.isfinite(value) else None


def rounded_interval(figures: Array) -> tuple[float | None, float | None, float | None]:
    """Round an estimate and the ends of its interval, (3,), so that the interval keeps its width."""
    value, low, high = figures.tolist()
    return rounded(value, high - low), rounded(low, high - low), rounded(high, high - low)


def rounded_up(p_value: float) -> float | None:
    """Round a p-value so that it stays valid: it is never 0."""
    return math.ceil(float(p_value) * 10**DIGITS) / 10**DIGITS if math.isfinite(p_value) else None


def stops(found: TrialFindings, spec: TrialSpec) -> str:
    """Return the first rule of the spec that holds; empty if none does."""
    return next((rule for rule in spec.algorithm.stop if _holds(rule, found, spec)), "")


def _holds(rule: str, found: TrialFindings, spec: TrialSpec) -> bool:
    if rule == "decided":
        return bool(found.called.decided[found.inhabited].all())
    if rule == "best":
        return bool(found.sure[found.inhabited].all())
    matters = spec.smallest
    ends = np.abs(found.intervals[found.inhabited, :, 1:])
    return matters is not None and bool((ends < matters).all())
