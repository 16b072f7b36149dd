"""A trial's treatment effects, by segment and on average: intervals, decisions, and reasons of missing intervals."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from privateer_core.answer.estimates import MeasuredRate
from privateer_core.answer.share_source import ShareSource
from privateer_core.answer.shares import Shares
from privateer_core.arrays import Array, Bools, Ints
from privateer_server.algorithms.trial.evidence.trial_evidence import (
    Average,
    HitValues,
    TrialEvidence,
    estimate_from_people,
    join_averages,
    joint_weights,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, align_ends, rates, scaled_variance
from privateer_server.algorithms.trial.group_sequential import (
    POWER,
    StoppedEffect,
    critical_values,
    estimate_stagewise,
    find_drift,
    p_values,
)
from privateer_server.algorithms.trial.reasons import (
    NO_INTERVAL_CODES,
    ArmCounts,
    choose_codes_of_missing_effects,
    choose_reason_codes,
    default_missing_codes,
    suggest_narrower_bounds,
)

Correction = Literal["holm", "bh"]


def holm(p_values: Array) -> Array:
    """Return adjusted p-values: at most alpha, they name a true null with that probability at most (Holm 1979)."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    adjusted = np.maximum.accumulate(flat[order] * np.arange(len(flat), 0, -1))
    return _restore_order(adjusted, order, p_values)


def benjamini_hochberg(p_values: Array) -> Array:
    """Return adjusted p-values: of those at most alpha, a share of alpha at most are true nulls on average."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    scaled = flat[order] * len(flat) / np.arange(1, len(flat) + 1)
    return _restore_order(np.minimum.accumulate(scaled[::-1])[::-1], order, p_values)


def _restore_order(adjusted: Array, order: Ints, template: Array) -> Array:
    """Return sorted p-values, at most 1, in the order and shape of a template."""
    values = np.empty(len(order))
    values[order] = np.minimum(adjusted, 1.0)
    return values.reshape(template.shape)


_ADJUSTMENTS: Final = {"holm": holm, "bh": benjamini_hochberg}


def adjust_p_values(p_values: Array, sums: Sums, correction: Correction) -> Array:
    """Return p-values (J, K) adjusted for all effects in inhabited segments."""
    adjusted, is_inhabited = np.ones(p_values.shape), sums.is_inhabited
    adjusted[is_inhabited] = _ADJUSTMENTS[correction](p_values[is_inhabited])
    return adjusted


_EMPTY_DEVIATIONS: Final = 2.0
"""Standard deviations by which a share of people must be above what a segment without anybody shows."""


def estimate_counted_shares(sums: Sums) -> Shares:
    """Return shares estimated from hits: (v - 2 o)/q, with v a segment's hits per person."""
    rate, q, o, people = rates(sums)
    noise = sums.hits_noise / np.square(sums.people)
    variance = (np.maximum(rate * (1 - rate), 0.0) / people + noise) / np.square(q)
    empty_variance = (2 * o * (1 - 2 * o) / people + noise) / np.square(q)
    estimate = ((rate - 2 * o) / q).mean(axis=1)
    is_empty = estimate <= _EMPTY_DEVIATIONS * np.sqrt(empty_variance.mean(axis=1))
    return Shares(estimate, np.asarray(variance.mean(axis=1)), ShareSource.COUNTED, np.asarray(is_empty))


def estimate_asked_shares(sums: Sums) -> Shares:
    """Return shares estimated from participants who were asked whether they are in the segment.

    `estimate_from_people` returns a segment's share times (1 - 1/2), whichever arm its people got.
    """
    half = np.full(sums.people.shape, 0.5)
    values, variances = estimate_from_people(sums, HitValues(half, half / 2), half)
    estimate, variance = 2 * values[..., 0].mean(axis=1), 4 * variances[..., 0].mean(axis=1)
    return Shares(estimate, variance, ShareSource.ASKED, np.asarray(estimate <= _EMPTY_DEVIATIONS * np.sqrt(variance)))


def choose_people_shares(evidence: TrialEvidence, asked_shares: Shares | None) -> Shares:
    """Return the shares of segments: counted by hits, else as asked, else as declared."""
    if evidence.design.counted:
        return estimate_counted_shares(evidence.stable)
    return asked_shares or Shares.fixed(evidence.design.segments, ShareSource.DECLARED)


def combine_averages(summed: TrialEvidence, everybody: TrialEvidence | None) -> Average:
    """Return average effects after the last look, joined with the direct average if there is one."""
    if everybody is None:
        return summed.average
    return join_averages(summed.average, everybody.average, compute_direct_weight(summed, everybody))


def combine_scores(summed: TrialEvidence, everybody: TrialEvidence | None) -> Array:
    """Return scores of average effects at each look, (looks, K); nan until both are ready."""
    if everybody is None:
        return summed.average_scores
    weight = compute_direct_weight(summed, everybody)
    return np.asarray(np.sqrt(weight) * everybody.average_scores + np.sqrt(1 - weight) * summed.average_scores)


def combine_sides(summed: TrialEvidence, everybody: TrialEvidence | None, critical: float) -> tuple[Array, Array]:
    """Return variances of average effects for both ends of their intervals, (K,) each."""
    sides = summed.average_sides(critical)
    if everybody is None:
        return sides
    a, b = joint_weights(summed.average, everybody.average, compute_direct_weight(summed, everybody))
    pairs = zip(everybody.average_sides(critical), sides, strict=True)
    low, high = ((np.square(a) * direct + np.square(b) * side) / np.square(a + b) for direct, side in pairs)
    return low, high


def compute_direct_weight(summed: TrialEvidence, everybody: TrialEvidence) -> float:
    """Return the share of the planned information in reports on all participants."""
    direct = everybody.design.precision
    return direct / (direct + summed.design.precision)


def fieller_limits(
    top: Array, top_variance: Array, bottom: Array, bottom_variance: Array, critical: float
) -> tuple[Array, Array]:
    """Return ends of {x: |top - x bottom| <= critical sd(top - x bottom)}, for independent errors (Fieller 1954).

    Infinite where the bottom is not told from 0 at this critical value: then no ratio is ruled out on one side at
    least. At x = 0 the set is that of the top alone, so it leaves 0 out exactly where the top is told from 0.
    """
    squared = critical**2
    a = np.square(bottom) - squared * bottom_variance
    c = np.square(top) - squared * top_variance
    is_bounded = (a > 0) & np.isfinite(c)
    a, b, c = np.where(is_bounded, a, 1.0), np.where(is_bounded, top * bottom, 0.0), np.where(is_bounded, c, 0.0)
    root = np.sqrt(np.maximum(np.square(b) - a * c, 0.0))
    return np.where(is_bounded, (b - root) / a, -np.inf), np.where(is_bounded, (b + root) / a, np.inf)


@dataclass(frozen=True)
class SegmentEffects:
    """Effects after the last look, shape (J, K) each; intervals of all looks hold at once, at the design's alpha."""

    # estimate, low, high: mean reward under the treatment less that under the control. nan without an interval.
    estimate: Array
    low: Array
    high: Array
    # joint_low, joint_high: intervals that all hold at once, with the boundary of alpha/(J K)
    joint_low: Array
    joint_high: Array
    # contribution, contribution_low, contribution_high: the effect times the segment's share of people: what it adds to
    # the average
    contribution: Array
    contribution_low: Array
    contribution_high: Array
    # p_value, adjusted, decided: sequential p-value, the same corrected for all effects, and whether that is at most
    # alpha
    p_value: Array
    adjusted: Array
    decided: Bools
    # effect that is found with probability .8 by the end of plan; infinite where the share is unknown
    detectable: Array
    reason: Ints  # a `ReasonCode` each, int64
    bounds: Array  # shape (J, K, 2): bounds within those of rewards that hold the rewards and resolve more
    rough: Array  # the estimate, also without an interval; nan where nobody is
    counts: ArmCounts  # what the arms have of what an interval needs


@dataclass(frozen=True)
class AverageEffects:
    """Average effects of K treatments, shape (K,) each (``bounds`` (K, 2)), named as in `SegmentEffects`.

    ``contribution`` (J, K) is what each segment adds, however few people it has; nan where nothing is said.
    """

    estimate: Array
    low: Array
    high: Array
    p_value: Array
    adjusted: Array
    decided: Bools
    detectable: Array
    contribution: Array
    reason: Ints
    bounds: Array
    rough: Array
    counts: ArmCounts


@dataclass(frozen=True)
class _Scale:
    """The ratio that scales a difference of positive hits to an effect: top/bottom of `fieller_limits`, (J, K) each.

    ``counts`` is what the number of a segment's hits adds to the variance of the top, a contribution.
    """

    sums: Sums
    top: Array
    variance: Array
    bottom: Array
    uncertainty: Array
    is_known: Bools
    counts: Array

    @property
    def effect(self) -> Array:
        """Shape (J, K): top/bottom; nan where the bottom is not known."""
        return np.where(self.is_known, self.top / np.where(self.is_known, self.bottom, 1.0), np.nan)

    def interval(self, critical: float, ready: Bools) -> tuple[Array, Array]:
        """Return the ends; nan where there is no interval; unbounded where the share is not told from 0."""
        if not np.isfinite(critical):
            no_interval = np.full(self.top.shape, np.nan)
            return no_interval, no_interval
        below, above = self._sides(critical)
        low, _ = fieller_limits(self.top, below, self.bottom, self.uncertainty, critical)
        _, high = fieller_limits(self.top, above, self.bottom, self.uncertainty, critical)
        low, high = np.where(self.is_known, low, -np.inf), np.where(self.is_known, high, np.inf)
        return np.where(ready, low, np.nan), np.where(ready, high, np.nan)

    def contribution(self, critical: float, ready: Bools) -> tuple[Array, Array, Array]:
        """Return the contribution and the ends of its interval; nan where there is no interval."""
        top = np.where(ready, self.top, np.nan)
        if not np.isfinite(critical):
            return top, top, top
        below, above = (critical * np.sqrt(variance + self.counts) for variance in self._sides(critical))
        return top, top - below, top + above

    def _sides(self, critical: float) -> tuple[Array, Array]:
        """Return the variances of the top for its lower and its upper end."""
        rate, q, _, _ = rates(self.sums)
        low, high = self.sums.side_variances(critical)
        return scaled_variance(low, rate / q), scaled_variance(high, rate / q)

    def detectable(self, times: tuple[float, ...], alpha: float) -> Array:
        """Return effects that are found at the end of plan; infinite where the share is unknown."""
        deviation = np.sqrt(self.variance) / np.where(self.is_known, self.bottom, 1.0)
        return np.where(self.is_known, _detectable_deviations(times, alpha) * deviation, np.inf)


def compute_effects(
    evidence: TrialEvidence,
    asked_shares: Shares | None = None,
    smallest: float | None = None,
    correction: Correction = "holm",
) -> SegmentEffects:
    """Return effects by segment after the last look.

    asked_shares: segments' shares, where participants were asked for them.
    smallest: the effect that the owner wants to find.
    correction: ``holm``: alpha bounds the probability of any wrong decision; ``bh``: the expected share of wrong ones.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    scale, ready = _build_scale(evidence, asked_shares, critical), evidence.stable.is_ready
    has_interval = ready & np.isfinite(critical)
    n_effects = max(1, int(evidence.stable.is_inhabited.sum()) * scale.top.shape[1])
    joint_critical = float(critical_values(times, alpha / n_effects)[-1])
    p_value = p_values(times, evidence.scores)[-1]
    adjusted, detectable = adjust_p_values(p_value, evidence.stable, correction), scale.detectable(times, alpha)
    decided = adjusted <= alpha
    return SegmentEffects(
        np.where(has_interval, scale.effect, np.nan),
        *scale.interval(critical, has_interval),
        *scale.interval(joint_critical, has_interval),
        *scale.contribution(critical, has_interval),
        p_value,
        adjusted,
        decided,
        detectable,
        choose_reason_codes(evidence.stable, scale.is_known, np.isfinite(critical), decided, detectable, smallest),
        suggest_narrower_bounds(evidence.stable),
        scale.effect,
        ArmCounts.from_sums(evidence.stable),
    )


def compute_average_effects(evidence: TrialEvidence, everybody: TrialEvidence | None = None) -> AverageEffects:
    """Return the average effects after the last look, a family of their own, corrected by Holm.

    They are joined with those of ``everybody``, the evidence of reports on all participants, if there is any.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    average = combine_averages(evidence, everybody)
    has_interval = average.is_ready & np.isfinite(critical)
    scores = combine_scores(evidence, everybody)
    p_value = p_values(times, scores)[-1]
    adjusted, pooled = holm(p_value), evidence.common.pooled
    missing_codes = choose_codes_of_missing_effects(pooled)[0]
    has_reason = average.is_ready | np.isin(missing_codes, NO_INTERVAL_CODES)
    estimate = np.where(has_interval, average.estimate, np.nan)
    below, above = estimate, estimate
    if np.isfinite(critical):
        below, above = align_ends(average.estimate, combine_sides(evidence, everybody, critical), scores[-1], critical)
    return AverageEffects(
        estimate,
        estimate - critical * np.sqrt(below),
        estimate + critical * np.sqrt(above),
        p_value,
        adjusted,
        adjusted <= alpha,
        _detectable_deviations(times, alpha) * np.sqrt(average.variance),
        np.where(has_interval, average.contributions, np.nan),
        np.where(has_reason, missing_codes, default_missing_codes(pooled)[0]),
        suggest_narrower_bounds(pooled)[0],
        np.where(pooled.is_inhabited, average.estimate, np.nan),
        ArmCounts.from_sums(pooled).select(0),
    )


def half_widths(evidence: TrialEvidence) -> Array:
    """Return half of the length of effects' intervals after the last look, (J, K); nan where there is none.

    Shares of segments that do not follow from hits are taken as planned.
    """
    critical = evidence.critical
    low, high = _build_scale(evidence, None, critical).interval(critical, evidence.stable.is_ready)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(is_bounded, np.where(is_bounded, high, 0.0) - np.where(is_bounded, low, 0.0), np.nan) / 2


def control_rate(evidence: TrialEvidence) -> MeasuredRate | None:
    """Return the control's mean reward among people of all segments; None before it has enough hits.

    A share t of positive hits is 1/2 + q p (f - 1/2) / v, with f the mean reward and v what hits a person has; the
    shares p of all segments add up to 1, and q p is v - 2 o where hits are counted.
    """
    if not evidence.looks or not evidence.common.pooled.is_ready.any():
        return None
    sums = evidence.common.pooled
    cell = 0, int(sums.is_ready[0].argmax())
    rate, q, o, _ = (float(array[cell]) for array in rates(sums))
    own_hits = rate - 2 * o if evidence.design.counted else q / len(evidence.design.segments)
    if own_hits <= 0:
        return None
    share = float(sums.num[cell][1] / sums.den[cell][1])
    deviation = float(np.sqrt(sums.own_variances[cell][1]))
    return MeasuredRate.normal(0.5 + rate / own_hits * (share - 0.5), rate / own_hits * deviation)


def stopped_effect(evidence: TrialEvidence) -> StoppedEffect:
    """Return the effect of a trial with a single contrast that a stopping rule ended at its last look."""
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = (array[0, 0] for array in rates(sums))
    gain = rate / (rate - 2 * o) if design.counted else 1 / (q * design.segments[0])
    deviation = float(np.sqrt(sums.own_variances[0, 0].sum()))
    score = float(sums.difference[0, 0]) / deviation
    return estimate_stagewise(evidence.times, design.alpha, score, float(gain) * deviation)


def _build_scale(evidence: TrialEvidence, asked_shares: Shares | None, critical: float) -> _Scale:
    """Return the scale of effects by segment, with the shares of segments as hits, questions or the spec give them."""
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = rates(sums)
    top, variance = rate / q * sums.difference, scaled_variance(sums.variance, rate / q)
    counts = np.zeros_like(top)
    shares = choose_people_shares(evidence, asked_shares)
    if design.counted:
        bottom, counts = (rate - 2 * o) / q, np.square(sums.difference) * shares.variance[:, None]
        # The share's error moves the top as well; what remains of it beside the bottom's is the share of others' hits.
        uncertainty = shares.variance[:, None] * np.square(2 * o / np.maximum(rate, 1e-12))
    else:
        bottom = np.broadcast_to(shares.estimate[:, None], top.shape)
        uncertainty = np.broadcast_to(shares.variance[:, None], top.shape)
    required_deviations = critical if np.isfinite(critical) else 0.0
    is_known = shares.estimate > required_deviations * np.sqrt(shares.variance)
    is_known_by_treatment = np.broadcast_to(is_known[:, None], top.shape)
    return _Scale(sums, top, variance, bottom, uncertainty, is_known_by_treatment, counts)


def _detectable_deviations(times: tuple[float, ...], alpha: float) -> float:
    """Return the detectable effect at the end of plan, in current standard errors, without further looks."""
    planned_times = times if times[-1] >= 1 else (*times, 1.0)
    return find_drift(planned_times, alpha, POWER) * float(np.sqrt(times[-1]))
