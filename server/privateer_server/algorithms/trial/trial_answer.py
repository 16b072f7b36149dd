"""The answer of a trial: effects with intervals, and recommendations with their basis."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import ConfidenceLabel
from privateer_core.answer.estimates import Effect, Estimate, Reason, classify_effect
from privateer_core.answer.facts import Fact, Table
from privateer_core.answer.parts import (
    AnswerPart,
    Basis,
    EffectPath,
    EffectsOverTime,
    Figures,
    Gain,
    GuardrailEffects,
    Intervals,
    Loss,
    Losses,
    Recommendation,
    Recommendations,
)
from privateer_core.answer.share_source import ShareSource
from privateer_core.arrays import Array, Bools
from privateer_core.policies.expected_rewards import ExpectedRewards, sum_by_group
from privateer_core.privacy.trust import NoiseOrigin
from privateer_server.algorithms.trial.decisions import (
    DIGITS,
    MISSING_REASONS,
    TrialFindings,
    build_effects,
    choose_overall_basis,
    choose_segment_basis,
    round_figure,
    round_interval,
)
from privateer_server.algorithms.trial.group_sequential import critical_values
from privateer_server.algorithms.trial.power.power_tables import QUESTION_COLUMNS, list_question_rows
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import (
    AverageEffects,
    SegmentEffects,
    compute_average_effects,
    compute_effects,
    stopped_effect,
)


def build_losses(state: TrialState, findings: TrialFindings, spec: TrialSpec) -> Iterator[Losses]:
    """Yield the loss of each segment's recommendation, even if nothing is decided.

    The loss is the mean reward of the best arm less that of the recommended one, so it is 0 if that is the best. Given
    the estimates, an arm is ahead of the recommended one by a normal variable: by their difference, with the noise of
    both, as if nothing had been known before. What it is ahead by, where it is, is added up over arms, which is no less
    than what the best of them is ahead by. The upper end is what another arm is ahead by at most while the interval of
    their difference holds; of two treatments that follows from both intervals and from how far errors of the control,
    which they share, make these alike (Zou and Donner 2008).
    It spends no privacy: it is computed from published intervals.
    """
    ends, deviations = findings.decisions.intervals, _standing_deviations(state, findings)
    shared, quantile_ratios = _control_variance_shares(state), _quantile_ratios(state)
    has_segments = spec.segment_count > 1
    losses = []
    for k in np.flatnonzero(findings.is_inhabited).tolist():
        arm, unit = int(findings.segment_arms[k]), spec.reward.span
        name = f"{spec.options[arm]}: {spec.segment_names[k]}" if has_segments else spec.options[arm]
        if not np.isfinite(ends[k]).all():
            losses.append(Loss(name, None, unit))
            continue
        expected, max_loss = bound_loss(arm, ends[k], deviations[k], shared[k], quantile_ratios[k])
        value, high = (round_figure(unit * amount, unit * max_loss) or 0.0 for amount in (expected, max_loss))
        losses.append(Loss(name, value, high))
    yield Losses(tuple(losses))


def bound_loss(
    best: int, intervals: Array, deviations: Array, shared: Array | None, quantile_ratios: Array | None = None
) -> tuple[float, float]:
    """Return an upper bound on an arm's expected loss, and the largest loss within the intervals.

    While intervals hold the loss is no larger than they leave open, and so is its mean.

    intervals: effects against arm 0 with the ends of their intervals, shape (K, 3).
    deviations: their standard deviations, shape (K,).
    shared (K,): the part of their variances that is the control's, by which they correlate; None: unknown.
    quantile_ratios (K,): factors by which intervals of two treatments are wider with few participants; None: all 1.
    """
    value, low, high = np.vstack([np.zeros(3), intervals]).T
    is_rival, control_roots = np.arange(len(value)) != best, np.zeros(len(value))
    if shared is not None:
        control_roots[1:] = np.sqrt(shared)
    deviation, coupling = np.append(0.0, deviations), control_roots * control_roots[best]
    deviation = np.sqrt(_gap_variance(deviation, deviation[best], coupling))[is_rival]
    differences = (value - value[best])[is_rival]
    score = differences / np.where(deviation > 0, deviation, 1.0)
    expected_excess = differences * ndtr(score) + deviation * np.exp(-np.square(score) / 2) / np.sqrt(2 * np.pi)
    expected = np.where(deviation > 0, expected_excess, np.maximum(differences, 0.0))
    ends = high - low[best]
    if shared is not None:
        ratios = np.ones(len(value))
        if quantile_ratios is not None and best:
            ratios[1:] = np.maximum(quantile_ratios, quantile_ratios[best - 1])
        ends = value - value[best] + ratios * np.sqrt(_gap_variance(high - value, value[best] - low[best], coupling))
    max_loss = float(ends[is_rival].max().clip(0, 1))
    return min(float(expected.sum()), max_loss), max_loss


def _gap_variance(first: Array, second: Array, correlations: Array) -> Array:
    return np.asarray(np.maximum(np.square(first) + np.square(second) - 2 * correlations * first * second, 0.0))


def _control_variance_shares(state: TrialState) -> Array:
    """Return the control's share of effects' variances, (J, K)."""
    parts = state.evidence.stable.own_variances
    total = parts.sum(axis=-1)
    is_known = np.isfinite(total) & (total > 0)
    return np.where(is_known, np.where(is_known, parts[..., 1], 0.0) / np.where(is_known, total, 1.0), 0.0)


def _quantile_ratios(state: TrialState) -> Array:
    """Return Student's quantile over the normal quantile, (J, K), by the treatment's degrees of freedom."""
    level = 1 - state.evidence.design.alpha / 2
    freedom = np.maximum(state.evidence.stable.people_of_arms[..., 0] - 1, 1.0)
    return np.asarray(stdtrit(freedom, level) / ndtri(level))


def _standing_deviations(state: TrialState, findings: TrialFindings) -> Array:
    """Return standard errors of effects, (J, K), from their latest intervals."""
    alpha, intervals = state.evidence.design.alpha, findings.decisions.intervals
    critical = critical_values(state.evidence.times, alpha)
    look = np.searchsorted(state.ratio.people.astype(np.int64), findings.decisions.people)
    return np.asarray((intervals[..., 2] - intervals[..., 1]) / 2 / critical[look])


_FALSE_ALARM: Final = 1e-3  # probability of a warning about shares of people, at a look, where they are as declared
_LABEL_BY_BASIS: Final[dict[Basis, ConfidenceLabel]] = {
    "decided against all other options": "decided",
    "decided against the control alone": "decided against the control",
    "decided on average alone": "decided on average",
}
_SAMPLE_RATIO_WARNING: Final = "arms are not heard from as often as they are given"


def build_answer(
    state: TrialState, findings: TrialFindings, spec: TrialSpec, warnings: tuple[str, ...], *, is_over: bool
) -> Answer:
    """Return the findings of the last look, after ``warnings``; effects in the rewards' own units."""
    parts: list[AnswerPart] = [_build_recommendations(findings, spec), _build_facts(state, spec, is_over)]
    parts += [*_build_stopped_effect(state, spec), *_build_guardrails(state, spec)]
    if spec.questions:
        parts.append(Table.of("what coins ask", QUESTION_COLUMNS, list_question_rows(spec)))
    parts += [*_build_share_intervals(state, spec), _build_effect_paths(state, spec)]
    parts += build_losses(state, findings, spec)
    ratio_warnings = (f"sample ratio: {_SAMPLE_RATIO_WARNING}",) if state.ratio.has_alert else ()
    return Answer(
        "ended" if is_over else "learning",
        state.reported,
        state.evidence.looks,
        1 - spec.algorithm.significance_level,
        spec.options[findings.overall_arm] if is_over else None,
        choose_overall_basis(findings) if is_over else None,
        ("its rule" if state.stopped else "its horizon") if is_over else None,
        tuple(_build_estimates(state, spec)),
        build_effects(state, findings, spec),
        _build_gain(state, findings, spec),
        (*warnings, *ratio_warnings, *_share_warnings(state, spec)),
        tuple(parts),
    )


def _build_estimates(state: TrialState, spec: TrialSpec) -> Iterator[Estimate]:
    """Yield the effects by segment and on average that have an interval at the last look, in units of rewards."""
    by_segment = ((name, state.path[-1, k, a - 1]) for k, a, name in spec.effects())
    averages = ((name, state.average_path[-1, a - 1]) for a, name in spec.average_effects())
    for name, interval in (*by_segment, *averages):
        value, low, high = (spec.reward.span * interval).tolist()
        if math.isfinite(value):
            yield Estimate(name, value, min(low, value), max(high, value))


def _build_gain(state: TrialState, findings: TrialFindings, spec: TrialSpec) -> Gain | None:
    """Return the policy's gain over a constant arm, or None, from participants after both were chosen.

    It is None if the policy has one arm for all, differs from the one chosen then, or has no interval yet.
    """
    holdout, inhabited = state.held, findings.is_inhabited
    segment_arms = findings.segment_arms[inhabited]
    if holdout is None or len(set(segment_arms.tolist())) < 2 or (holdout.best[inhabited] != segment_arms).any():
        return None
    gain = holdout.gain()
    if gain is None:
        return None
    value, low, high = round_interval(spec.reward.span * np.array(gain))
    return Gain(spec.options[holdout.constant], value, low, high, int(holdout.evidence.people[-1]))


def _share_warnings(state: TrialState, spec: TrialSpec) -> Iterator[str]:
    """Yield a warning if reports contradict a segment's declared share of participants."""
    declared, counted = spec.segment_shares, state.shares_of_people
    if spec.segments.proportions is None or counted.source is not ShareSource.COUNTED:
        return
    errors = np.abs(counted.estimate - declared)
    level = ndtri(1 - _FALSE_ALARM / (2 * len(errors)))
    expected = declared * (1 - declared) / max(1, state.reported)
    is_surprising = errors > level * np.sqrt(np.maximum(counted.variance, expected))
    k = int(np.argmax(np.where(is_surprising, errors, -1.0)))
    if is_surprising[k]:
        share = f"{counted.estimate[k].clip(0, 1):.1%} of the people"
        yield f"segments.proportions declares {declared[k]:.1%} for {spec.segment_names[k]}, and reports count {share}"


def build_expected_rewards(state: TrialState, findings: TrialFindings, spec: TrialSpec) -> ExpectedRewards | None:
    """Return the effects of every arm by segment, 0 for the control; None with a single segment."""
    if spec.segment_count == 1:
        return None
    size, critical = spec.segment_count, state.evidence.critical
    intervals = spec.reward.span * findings.decisions.intervals
    effects, is_known = intervals[..., 0], np.isfinite(intervals).all(axis=-1)
    radii = (intervals[..., 2] - intervals[..., 1]) / 2
    control = np.zeros((size, 1))
    means = np.concatenate([control, np.where(is_known, effects, 0.0)], axis=1)
    deviations = np.concatenate([control, np.where(is_known, radii / critical, np.inf)], axis=1)
    segmentation = spec.segmentation

    def predict(contexts: Array) -> tuple[Array, Array]:
        rows = segmentation.locate(contexts)
        return means[rows], deviations[rows]

    def standard_error(contexts: Array, weights: Array) -> float:
        summed = sum_by_group(segmentation.locate(contexts), weights, size)
        return float((np.abs(summed) * np.where(summed, deviations, 0.0)).sum())

    lower, upper = segmentation.corners(spec.dimension)
    confidence_label = tuple(_LABEL_BY_BASIS.get(choose_segment_basis(findings, k), "not known") for k in range(size))
    shares = replace(state.shares_of_people, names=spec.segment_names)
    return ExpectedRewards(lower, upper, shares, predict, standard_error, differences=True, decided=confidence_label)


def _build_recommendations(findings: TrialFindings, spec: TrialSpec) -> Recommendations:
    rows = []
    for k in np.flatnonzero(findings.is_inhabited).tolist():
        option, basis = spec.options[findings.segment_arms[k]], choose_segment_basis(findings, k)
        rows.append(Recommendation(spec.segment_names[k], option, basis))
    return Recommendations(tuple(rows))


def _build_facts(state: TrialState, spec: TrialSpec, is_over: bool) -> Figures:
    """Return the facts that the findings rest on: participants, looks, method, checks and privacy."""
    section, privacy = spec.algorithm, spec.privacy
    method = f"sequential intervals of {100 * (1 - section.significance_level):g}% confidence"
    facts = (
        Fact("people", state.reported, "count"),
        Fact("people planned", spec.experiment.horizon, "count"),
        Fact("looks", state.evidence.looks, "count"),
        Fact("looks planned", len(spec.looks), "count"),
        Fact("ended by", (state.stopped or "its horizon") if is_over else None),
        Fact("method", f"{method}, decided by {section.correction}"),
        Fact("allocation", section.allocation),
        Fact("least share of an arm", round_figure(spec.min_arm_share), "share"),
        Fact("sample ratio", _SAMPLE_RATIO_WARNING if state.ratio.has_alert else "as planned"),
        Fact("largest z of the sample ratio", round_figure(float(np.abs(state.ratio.scores[-1]).max())), "number"),
        Fact("shares of people are", str(state.shares_of_people.source)),
        Fact("trust model", privacy.model),
        Fact("epsilon", privacy.epsilon, "number"),
        Fact("delta", privacy.delta, "probability"),
        Fact("reports of a person", 1, "count"),
        *_bound_facts(state, spec),
    )
    return Figures("what it rests on", (*facts, *_adjustment_facts(state, spec)))


def _adjustment_facts(state: TrialState, spec: TrialSpec) -> Iterator[Fact]:
    """Yield the adjustments of rewards, and the learned slopes, in the units of reward and number."""
    reward = spec.reward
    if reward.covariates:
        yield Fact("rewards are adjusted by", ", ".join(reward.covariates))
    for name, learned in zip(spec.learned_adjustments, state.learned, strict=False):
        slope = reward.span * learned.slope / reward.covariates[name].span
        fact = Fact(f"slope of {name}, learned", round_figure(slope), "number")
        yield fact if learned.slope else Fact(f"slope of {name}, learned", "none: noise hides how much it varies")


def _bound_facts(state: TrialState, spec: TrialSpec) -> Iterator[Fact]:
    """Yield upper bounds on the share of numeric rewards at their bounds, from a curator's sums.

    Of a mean f and a variance v no more than v / (v + (1 - f)^2) are 1, and v / (v + f^2) are 0 (Cantelli 1928).
    """
    sums = state.evidence.stable.pooled
    if sums.values is None or spec.privacy.trust.noise is NoiseOrigin.DEVICES or not sums.is_ready.all():
        return
    mean, variance = sums.middle, sums.spread_of_hits
    for bound, distances in ((spec.reward.low, mean), (spec.reward.high, 1 - mean)):
        max_share = float((variance / (variance + np.square(distances))).max())
        yield Fact(f"rewards of {bound:g}, at most", round_figure(max_share), "share")


def _build_stopped_effect(state: TrialState, spec: TrialSpec) -> Iterator[Intervals]:
    """Yield the effect whose decision ended the trial, without selection bias, if it is the only effect."""
    if state.stopped not in ("decided", "best") or state.evidence.scores[0].size > 1:
        return
    stopped, unit = stopped_effect(state.evidence), spec.reward.span
    value, low, high = round_interval(unit * np.array([stopped.estimate, stopped.low, stopped.high]))
    if value is not None and low is not None and high is not None:
        estimate = Estimate(spec.options[1], value, low, high)
        yield Intervals("at the stop, without its bias", "difference", (estimate,))


def _build_guardrails(state: TrialState, spec: TrialSpec) -> Iterator[GuardrailEffects]:
    everybody = state.everybody[1:] or (None,) * len(state.guardrails)
    for name, evidence, pooled in zip(spec.algorithm.guardrails, state.guardrails, everybody, strict=True):
        effects = compute_effects(evidence, state.asked_shares)
        average_effects = compute_average_effects(evidence, pooled)
        cells = _inhabited_cells(spec, evidence.stable.is_inhabited)
        by_segment = (_build_guardrail_effect(effects, (k, a - 1), spec.options[a], group) for k, a, group in cells)
        arms = (a for a, _ in spec.average_effects())
        averages = (_build_guardrail_effect(average_effects, (a - 1,), spec.options[a], None) for a in arms)
        yield GuardrailEffects(name, (*by_segment, *averages))


def _build_guardrail_effect(
    effects: SegmentEffects | AverageEffects, cell: tuple[int, ...], option: str, group: str | None
) -> Effect:
    value, low, high = (float(part[cell]) for part in (effects.estimate, effects.low, effects.high))
    is_decided = bool(effects.decided[cell])
    missing_reason = MISSING_REASONS.get(ReasonCode(int(effects.reason[cell])), Reason.NOT_LOOKED_AT)
    reason = Reason.EARLIER if is_decided else missing_reason
    if math.isfinite(value):
        reason = classify_effect(low, high, decided=is_decided)
    return Effect(option, group, *round_interval(np.array([value, low, high])), reason)


def _build_share_intervals(state: TrialState, spec: TrialSpec) -> Iterator[Intervals]:
    """Yield the segments' shares as asked, with intervals; nothing between looks."""
    shares, critical = state.asked_shares, state.evidence.critical
    if shares is None or not np.isfinite(critical):
        return
    values, radius = shares.estimate, critical * np.sqrt(shares.variance)
    ends = np.stack([values, values - radius, values + radius], axis=1).clip(0, 1)
    is_beyond = ((values < 0) | (values > 1)).tolist()
    rows = zip(spec.segment_names, ends.round(DIGITS).tolist(), is_beyond, strict=True)
    estimates = (Estimate(name, value, low, high, is_at_bound) for name, (value, low, high), is_at_bound in rows)
    yield Intervals("shares of people", "share", tuple(estimates))


def _build_effect_paths(state: TrialState, spec: TrialSpec) -> EffectsOverTime:
    paths = []
    for k, a, group in _inhabited_cells(spec, state.evidence.stable.is_inhabited):
        path = spec.reward.span * state.path[:, k, a - 1]
        values, lows, highs = zip(*map(round_interval, path), strict=True)
        paths.append(EffectPath(spec.options[a], group, values, lows, highs))
    return EffectsOverTime(tuple(int(people) for people in state.ratio.people), tuple(paths))


def _inhabited_cells(spec: TrialSpec, inhabited: Bools) -> Iterator[tuple[int, int, str | None]]:
    """Yield segment, arm and the segment's name of every effect in inhabited segments."""
    for k, a, _ in spec.effects():
        if inhabited[k]:
            yield k, a, spec.segment_names[k] if spec.segment_count > 1 else None
