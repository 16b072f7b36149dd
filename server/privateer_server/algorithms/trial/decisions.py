"""Decisions of a trial: effects, the reason of each decision, and the stopping rule; rewards are in [0, 1]."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Effect, Reason, classify_effect, format_bounds
from privateer_core.answer.parts import Basis
from privateer_core.arrays import Array, Bools, Ints
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.reasons import ReasonCode, StandingDecisions, choose_arms, find_leader
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import (
    AverageEffects,
    Correction,
    SegmentEffects,
    compute_average_effects,
    compute_effects,
)

_CORRECTIONS: Final[dict[str, Correction]] = {"holm": "holm", "bh": "bh", "none": "holm"}
DIGITS: Final = 6
_MAX_NAME_LENGTH: Final = 40  # characters of an arm's name in a remark
_MAX_BOUNDS_RATIO: Final = 0.5  # bounds that are worth naming: no wider than so much of those of the spec
MISSING_REASONS: Final[dict[ReasonCode, Reason]] = {
    ReasonCode.FEW: Reason.FEW_PEOPLE,
    ReasonCode.NOBODY: Reason.NOBODY,
    ReasonCode.NOISE: Reason.NOISE,
    ReasonCode.RARE: Reason.RARE,
    ReasonCode.HEAVY: Reason.HEAVY_TAIL,
    ReasonCode.SHARE: Reason.SHARE,
    ReasonCode.LOOK: Reason.NOT_LOOKED_AT,
    ReasonCode.UNRESOLVED: Reason.UNRESOLVED,
}
_REMARK_TEMPLATES: Final = {
    ReasonCode.FEW: "{arm} counts as {people}, and an interval needs {needed}",
    ReasonCode.NOBODY: "{arm} counts as {people}{noise}: see whether its outcomes are such that count",
    ReasonCode.NOISE: "{arm} counts as {people}{noise}, and an interval needs ten times the noise: ask more people",
    ReasonCode.RARE: (
        "{own} with {option} and {other} with {base}; an interval needs {rare_needed} in each at the rate of both"
    ),
    ReasonCode.HEAVY: (
        "an interval needs the mean of each arm to rest on as much as {rare_needed} equal rewards, "
        "not on {n_effective_rewards}"
    ),
    ReasonCode.SHARE: "segments.proportions declares it, or more people",
    ReasonCode.SMALL: "effects that matter will not be found",
    ReasonCode.UNRESOLVED: "if they vary at all, bounds of {bounds} tell by how much",
    ReasonCode.HIDDEN: "noise hides how much rewards vary: bounds of {bounds} need less of it",
}
_NARROWER_BOUNDS_HINT: Final = "; so do narrower bounds, if rewards are all near one of them"


@dataclass(frozen=True)
class TrialFindings:
    """Effects by segment and treatment (J, K), their averages (K,), and recommendations at the last look."""

    # effects, called: by segment, and what is decided of each
    effects: SegmentEffects
    decisions: StandingDecisions
    # average, average_called: the same on average; None if everybody is one segment
    average: AverageEffects | None
    average_decisions: StandingDecisions | None
    segment_arms: Ints  # shape (J,), int64: the arm that a segment gets when nobody is asked any more
    overall_arm: int  # the arm that is recommended if everybody gets the same
    is_best: Bools  # shape (J,): whether the given arm is better than all others, in all segments at once
    is_inhabited: Bools  # shape (J,): whether anybody was counted in a segment

    @classmethod
    def from_state(cls, state: TrialState, spec: TrialSpec) -> "TrialFindings":
        """Return the findings of a state after a look."""
        evidence, section, n_segments = state.evidence, spec.algorithm, spec.segment_count
        correction = _CORRECTIONS[section.correction]
        effects = compute_effects(evidence, state.asked_shares, spec.min_relevant_effect, correction)
        decided = effects.p_value <= section.significance_level if section.correction == "none" else effects.decided
        contribution_ends, people = (effects.contribution_low, effects.contribution_high), state.ratio.people
        path = _append_look(state.path, _stack_intervals(effects), evidence)
        decisions = StandingDecisions.from_interval_path(path, people, decided, contribution_ends)
        average = compute_average_effects(evidence, next(iter(state.everybody), None)) if n_segments > 1 else None
        average_decisions = None
        if average:
            path = _append_look(state.average_path, _stack_intervals(average), evidence)
            ends = (average.low, average.high)
            average_decisions = StandingDecisions.from_interval_path(path, people, average.decided, ends)
        # Precision weights: those of intervals forget an early decision where shares are extreme.
        arm_values = np.concatenate([np.zeros((n_segments, 1)), evidence.precise.difference], axis=1)
        arms = choose_arms(decisions, average_decisions, arm_values)
        is_best = _is_best_in_segment(effects, arms[0])
        return cls(effects, decisions, average, average_decisions, *arms, is_best, evidence.stable.is_inhabited)

    @property
    def best_constant_arm(self) -> int:
        """The arm with the highest mean reward over all segments."""
        return find_leader(self.effects.contribution.sum(axis=0) if self.average is None else self.average.estimate)

    @property
    def intervals(self) -> Array:
        """Estimates and interval ends at this look, (J, K, 3); nan where nothing is said."""
        return _stack_intervals(self.effects)

    def average_intervals(self, treatments: int) -> Array:
        """Return the estimates and interval ends of average effects, (K, 3)."""
        return np.full((treatments, 3), np.nan) if self.average is None else _stack_intervals(self.average)


def _append_look(path: Array, intervals: Array, evidence: TrialEvidence) -> Array:
    """Return the intervals of all looks, with the current look appended if the path lacks it."""
    return path if len(path) == evidence.looks else np.concatenate([path, intervals[None]])


def _stack_intervals(effects: SegmentEffects | AverageEffects) -> Array:
    """Return estimates with the ends of their intervals, (..., 3); nan where one of these is not finite."""
    stacked = np.stack([effects.estimate, effects.low, effects.high], axis=-1)
    return np.where(np.isfinite(stacked).all(axis=-1, keepdims=True), stacked, np.nan)


def _is_best_in_segment(effects: SegmentEffects, best_arms: Ints) -> Bools:
    """Return whether the joint interval of the best arm is above all others; the control's is the point 0."""
    n_segments = len(best_arms)
    low = np.concatenate([np.zeros((n_segments, 1)), np.nan_to_num(effects.joint_low, nan=-np.inf)], axis=1)
    high = np.concatenate([np.zeros((n_segments, 1)), np.nan_to_num(effects.joint_high, nan=np.inf)], axis=1)
    rows = np.arange(n_segments)
    best_low = low[rows, best_arms]
    high[rows, best_arms] = -np.inf
    return np.asarray(best_low > high.max(axis=1))


def build_effects(state: TrialState, findings: TrialFindings, spec: TrialSpec) -> tuple[Effect, ...]:
    """Return every effect by segment, then the averages, in units of rewards, with decision and reason."""
    effects = (*_build_segment_effects(findings, spec), *_build_average_effects(findings, spec))
    return tuple(_add_look_remark(effect, state.reported) for effect in effects)


def _build_segment_effects(findings: TrialFindings, spec: TrialSpec) -> Iterator[Effect]:
    effects, decisions, unit = findings.effects, findings.decisions, spec.reward.span
    contributions = (findings.average or effects).contribution
    for k, a, _ in spec.effects():
        if not findings.is_inhabited[k]:
            continue
        cell, group = (k, a - 1), spec.segment_names[k] if spec.segment_count > 1 else None
        contribution_ends = float(effects.contribution_low[cell]), float(effects.contribution_high[cell])
        code = ReasonCode(int(effects.reason[cell]))
        reason = _choose_reason(decisions, cell, MISSING_REASONS.get(code), contribution_ends)
        effect = _build_effect(spec, a, group, decisions, cell, reason, effects.rough)
        detectable = unit * float(effects.detectable[cell])
        yield msgspec.structs.replace(
            _explain_undecided_effect(effect, code, effects, cell, spec),
            p_value=round_p_value_up(effects.p_value[cell]),
            detectable=round_figure(detectable, detectable),
            contribution=round_figure(unit * contributions[cell], detectable),
        )


def _build_average_effects(findings: TrialFindings, spec: TrialSpec) -> Iterator[Effect]:
    """Yield the average effects over segments, in units of rewards; none with a single segment."""
    average_effects, decisions, unit = findings.average, findings.average_decisions, spec.reward.span
    if average_effects is None or decisions is None:
        return
    for a, _ in spec.average_effects():
        cell = (a - 1,)
        code = ReasonCode(int(average_effects.reason[cell]))
        is_known = math.isfinite(average_effects.estimate[cell])
        missing_reason = None if is_known else MISSING_REASONS.get(code, MISSING_REASONS[ReasonCode.LOOK])
        reason = _choose_reason(decisions, cell, missing_reason, (math.nan, math.nan))
        effect = _build_effect(spec, a, None, decisions, cell, reason, average_effects.rough)
        detectable = unit * float(average_effects.detectable[cell])
        yield msgspec.structs.replace(
            _explain_undecided_effect(effect, code, average_effects, cell, spec),
            p_value=round_p_value_up(average_effects.p_value[cell]),
            detectable=round_figure(detectable, detectable),
        )


def _explain_undecided_effect(
    effect: Effect, code: ReasonCode, effects: SegmentEffects | AverageEffects, cell: tuple[int, ...], spec: TrialSpec
) -> Effect:
    """Return an effect with a remark on its remedy, if undecided, and with narrower bounds if these help."""
    low, high = (spec.reward.low + spec.reward.span * effects.bounds[cell]).tolist()
    is_about_bounds = code in (ReasonCode.UNRESOLVED, ReasonCode.HIDDEN)
    if effect.is_decided or (is_about_bounds and high - low > _MAX_BOUNDS_RATIO * spec.reward.span):
        return effect
    option, base = effect.arm[:_MAX_NAME_LENGTH], spec.options[0][:_MAX_NAME_LENGTH]
    words = {"option": option, "base": base, "bounds": format_bounds(low, high)}
    words |= effects.counts.select(*cell).format_figures((option, base))
    remark = _REMARK_TEMPLATES.get(code, "").format(**words)
    remark += _NARROWER_BOUNDS_HINT if code is ReasonCode.NOISE and spec.is_numeric else ""
    return msgspec.structs.replace(effect, remark=remark, bounds=(low, high) if is_about_bounds else None)


def _add_look_remark(effect: Effect, reported: int) -> Effect:
    """Return an effect with a remark if its figures are not those of the last look."""
    if effect.people is None or effect.people == reported:
        return effect
    note = f"when {effect.people:,} people had reported; too few since to say more"
    remark = "; ".join(filter(None, (effect.remark, note)))
    return msgspec.structs.replace(effect, remark=remark)


def _choose_reason(
    decisions: StandingDecisions,
    cell: tuple[int, ...],
    missing_reason: Reason | None,
    contribution_ends: tuple[float, float],
) -> Reason:
    """Return the reason of an effect; ``missing_reason`` explains a missing interval at this look.

    An earlier decision is kept with the interval of its last look; where an effect's scale is not known, the interval
    of its contribution to the average gives the sign.
    """
    ends, is_tested = decisions.intervals[cell][1:], bool(decisions.tested[cell])
    if missing_reason is None or (is_tested and np.isfinite(ends).all()):
        return classify_effect(float(ends[0]), float(ends[1]), decided=is_tested)
    return classify_effect(*contribution_ends, decided=True) if decisions.decided[cell] else missing_reason


def _build_effect(
    spec: TrialSpec,
    arm: int,
    group: str | None,
    decisions: StandingDecisions,
    cell: tuple[int, ...],
    reason: Reason,
    rough_estimates: Array,
) -> Effect:
    """Return an effect with the figures of its last interval, unless these do not hold now."""
    if reason in (Reason.RARE, Reason.HEAVY_TAIL):
        estimate = spec.reward.span * float(rough_estimates[cell])
        return Effect(spec.options[arm], group, round_figure(estimate, abs(estimate)), None, None, reason)
    if reason in MISSING_REASONS.values():
        return Effect(spec.options[arm], group, None, None, None, reason)
    value, low, high = round_interval(spec.reward.span * decisions.intervals[cell])
    people = None if value is None else int(decisions.people[cell])
    return Effect(spec.options[arm], group, value, low, high, reason, people)


def choose_segment_basis(findings: TrialFindings, segment: int) -> Basis:
    """Return the basis of the recommendation for a segment."""
    decisions, arm, average = findings.decisions, int(findings.segment_arms[segment]), findings.average_decisions
    if findings.is_best[segment]:
        return "decided against all other options"
    is_of_average = arm > 0 and average is not None and not decisions.better[segment, arm - 1]
    if is_of_average and average is not None and average.better[arm - 1]:
        return "decided on average alone"
    has_effect = np.isfinite(findings.effects.estimate[segment]) | decisions.tested[segment]
    effects = np.where(has_effect, decisions.intervals[segment, :, 0], np.nan)
    return _choose_basis(arm, effects, decisions.decided[segment])


def choose_overall_basis(findings: TrialFindings) -> Basis:
    """Return the basis of the recommendation for all segments together."""
    decisions = findings.average_decisions
    if decisions is None:
        return choose_segment_basis(findings, 0)
    return _choose_basis(findings.overall_arm, decisions.intervals[:, 0], decisions.decided)


def _choose_basis(arm: int, effects: Array, is_decided: Bools) -> Basis:
    """Return the basis of recommending an arm, from effects of K treatments, (K,), and their decisions."""
    if np.isnan(effects).all() and not is_decided.any():
        return "too few people to say"
    if arm == 0:
        if (is_decided & (effects < 0)).all():
            return "decided against all other options"
        is_ahead = bool((np.nan_to_num(effects) <= 0).all())
        return "ahead, and not decided" if is_ahead else "kept, as nothing is decided to be better"
    if not is_decided[arm - 1] or effects[arm - 1] < 0:
        return "ahead, and not decided"
    return "decided against all other options" if len(effects) == 1 else "decided against the control alone"


def round_figure(value: float, scale: float = 1.0) -> float | None:
    """Round a figure to a thousandth of its scale if that is below 1; None if not finite."""
    n_leading_zeros = -math.floor(math.log10(scale)) if 0 < scale < 1 else 0
    return round(float(value), max(DIGITS, 3 + n_leading_zeros)) if math.isfinite(value) else None


def round_interval(figures: Array) -> tuple[float | None, float | None, float | None]:
    """Round an estimate and the ends of its interval, (3,), so that the interval keeps its width."""
    value, low, high = figures.tolist()
    return round_figure(value, high - low), round_figure(low, high - low), round_figure(high, high - low)


def round_p_value_up(p_value: float) -> float | None:
    """Round a p-value so that it stays valid: it is never 0; None if it is not finite."""
    return math.ceil(float(p_value) * 10**DIGITS) / 10**DIGITS if math.isfinite(p_value) else None


def find_stopping_rule(findings: TrialFindings, spec: TrialSpec) -> str:
    """Return the first rule of the spec that is satisfied; empty if none is."""
    return next((rule for rule in spec.algorithm.stopping_rules if _is_satisfied(rule, findings, spec)), "")


def _is_satisfied(rule: str, findings: TrialFindings, spec: TrialSpec) -> bool:
    """Whether a stopping rule is satisfied: all effects decided, the best arm known, or all effects small."""
    if rule == "decided":
        return bool(findings.decisions.decided[findings.is_inhabited].all())
    if rule == "best":
        return bool(findings.is_best[findings.is_inhabited].all())
    smallest_effect = spec.min_relevant_effect
    ends = np.abs(findings.intervals[findings.is_inhabited, :, 1:])
    return smallest_effect is not None and bool((ends < smallest_effect).all())
