"""A trial's treatment effects, by segment and on average: intervals, decisions, and where nothing is said, why."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.shares import Shares, ShareSource
from privateer_server.algorithms.trial.corrections import Correction, corrected, holm
from privateer_server.algorithms.trial.evidence.averages import (
    Average,
    HitValues,
    by_people,
    joined,
    joint_weights,
)
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, agreeing, rates, scaled_variance
from privateer_server.algorithms.trial.group_sequential import (
    POWER,
    StoppedEffect,
    critical_values,
    drift_of,
    p_values,
    stagewise,
)
from privateer_server.algorithms.trial.reasons import (
    NO_INTERVAL,
    ArmCounts,
    narrower_bounds,
    reasons,
    too_few,
    unsaid_reasons,
)

Array = NDArray[np.float64]
_TOLD: Final = 2.0
"""Standard deviations by which a share of people must be above what a segment without anybody shows."""


def counted_shares(sums: Sums) -> Shares:
    """Shares told by hits: (v - 2 o)/q, with v a segment's hits per person."""
    rate, q, o, people = rates(sums)
    noise = sums.hits_noise / np.square(sums.people)
    variance = (np.maximum(rate * (1 - rate), 0.0) / people + noise) / np.square(q)
    of_nobody = (2 * o * (1 - 2 * o) / people + noise) / np.square(q)
    estimate = ((rate - 2 * o) / q).mean(axis=1)
    is_empty = estimate <= _TOLD * np.sqrt(of_nobody.mean(axis=1))
    return Shares(estimate, np.asarray(variance.mean(axis=1)), ShareSource.COUNTED, np.asarray(is_empty))


def asked_shares(sums: Sums) -> Shares:
    """Shares told by people who were asked for their segment, and said yes.

    `by_people` has a segment's share times (1 - 1/2), whichever arm its people got.
    """
    half = np.full(sums.people.shape, 0.5)
    values, variances = by_people(sums, HitValues(half, half / 2), half)
    estimate, variance = 2 * values[..., 0].mean(axis=1), 4 * variances[..., 0].mean(axis=1)
    return Shares(estimate, variance, ShareSource.ASKED, np.asarray(estimate <= _TOLD * np.sqrt(variance)))


def people_shares(evidence: TrialEvidence, asked: Shares | None) -> Shares:
    """Return who comes, by segment: as hits tell, else as people were ``asked``, else as the spec declares."""
    if evidence.design.counted:
        return counted_shares(evidence.stable)
    return asked or Shares.fixed(evidence.design.segments, ShareSource.DECLARED)


def combined(summed: TrialEvidence, everybody: TrialEvidence | None) -> Average:
    """Return average effects after the last look; without people asked about everybody, of the sum alone."""
    if everybody is None:
        return summed.average
    return joined(summed.average, everybody.average, weight_of(summed, everybody))


def combined_scores(summed: TrialEvidence, everybody: TrialEvidence | None) -> Array:
    """Return scores of average effects at each look, (looks, K); nan until both are ready."""
    if everybody is None:
        return summed.average_scores
    weight = weight_of(summed, everybody)
    return np.asarray(np.sqrt(weight) * everybody.average_scores + np.sqrt(1 - weight) * summed.average_scores)


def combined_sides(summed: TrialEvidence, everybody: TrialEvidence | None, critical: float) -> tuple[Array, Array]:
    """Return variances of average effects for both ends of their intervals, (K,) each, as `combined` weighs them."""
    sides = summed.average_sides(critical)
    if everybody is None:
        return sides
    a, b = joint_weights(summed.average, everybody.average, weight_of(summed, everybody))
    low, high = (
        (np.square(a) * direct + np.square(b) * of_sum) / np.square(a + b)
        for direct, of_sum in zip(everybody.average_sides(critical), sides, strict=True)
    )
    return low, high


def weight_of(summed: TrialEvidence, everybody: TrialEvidence) -> float:
    """Return the share of the planned information that people have who are asked about everybody."""
    direct = everybody.design.precision
    return direct / (direct + summed.design.precision)


def fieller(
    top: Array, top_variance: Array, bottom: Array, bottom_variance: Array, critical: float
) -> tuple[Array, Array]:
    """Return ends of {x: |top - x bottom| <= critical sd(top - x bottom)}, for independent errors (Fieller 1954).

    Infinite where the bottom is not told from 0 at this critical value: then no ratio is ruled out on one side at
    least. At x = 0 the set is that of the top alone, so it leaves 0 out exactly where the top is told from 0.
    """
    squared = critical**2
    a = np.square(bottom) - squared * bottom_variance
    c = np.square(top) - squared * top_variance
    bounded = (a > 0) & np.isfinite(c)
    a, b, c = np.where(bounded, a, 1.0), np.where(bounded, top * bottom, 0.0), np.where(bounded, c, 0.0)
    root = np.sqrt(np.maximum(np.square(b) - a * c, 0.0))
    return np.where(bounded, (b - root) / a, -np.inf), np.where(bounded, (b + root) / a, np.inf)


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
    decided: NDArray[np.bool_]
    # effect that is found with probability .8 by the end of plan; infinite where the share is unknown
    detectable: Array
    reason: NDArray[np.int64]  # a `ReasonCode` each, int64
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
    decided: NDArray[np.bool_]
    detectable: Array
    contribution: Array
    reason: NDArray[np.int64]
    bounds: Array
    rough: Array
    counts: ArmCounts


@dataclass(frozen=True)
class _Scale:
    """The ratio that makes a difference of positive hits an effect: top/bottom, as `fieller` takes them, (J, K) each.

    ``counts`` is what the number of a segment's hits adds to the variance of the top, a contribution.
    """

    sums: Sums
    top: Array
    variance: Array
    bottom: Array
    uncertainty: Array
    known: NDArray[np.bool_]
    counts: Array

    @property
    def effect(self) -> Array:
        """Shape (J, K): top/bottom; nan where the bottom is not known."""
        return np.where(self.known, self.top / np.where(self.known, self.bottom, 1.0), np.nan)

    def interval(self, critical: float, ready: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the ends; nan where there is no interval; unbounded where the share is not told from 0."""
        if not np.isfinite(critical):
            nothing = np.full(self.top.shape, np.nan)
            return nothing, nothing
        below, above = self._sides(critical)
        low, _ = fieller(self.top, below, self.bottom, self.uncertainty, critical)
        _, high = fieller(self.top, above, self.bottom, self.uncertainty, critical)
        low, high = np.where(self.known, low, -np.inf), np.where(self.known, high, np.inf)
        return np.where(ready, low, np.nan), np.where(ready, high, np.nan)

    def contribution(self, critical: float, ready: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
        """Return the contribution and the ends of its interval; nan where there is no interval."""
        top = np.where(ready, self.top, np.nan)
        if not np.isfinite(critical):
            return top, top, top
        below, above = (critical * np.sqrt(one + self.counts) for one in self._sides(critical))
        return top, top - below, top + above

    def _sides(self, critical: float) -> tuple[Array, Array]:
        """Return the variances of the top for its lower and its upper end."""
        rate, q, _, _ = rates(self.sums)
        low, high = self.sums.side_variances(critical)
        return scaled_variance(low, rate / q), scaled_variance(high, rate / q)

    def detectable(self, times: tuple[float, ...], alpha: float) -> Array:
        """Return effects that are found at the end of plan; infinite where the share is unknown."""
        deviation = np.sqrt(self.variance) / np.where(self.known, self.bottom, 1.0)
        return np.where(self.known, _to_come(times, alpha) * deviation, np.inf)


def effects(
    evidence: TrialEvidence,
    asked: Shares | None = None,
    smallest: float | None = None,
    correction: Correction = "holm",
) -> SegmentEffects:
    """Return effects after the last look.

    asked: segments' shares, where people were asked for them.
    smallest: the effect that the owner wants to find.
    correction: ``holm``: alpha bounds the probability of any wrong decision; ``bh``: the expected share of wrong ones.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    scale, ready = _scale(evidence, asked, critical), evidence.stable.ready
    said = ready & np.isfinite(critical)
    joint = float(critical_values(times, alpha / max(1, int(evidence.stable.somebody.sum()) * scale.top.shape[1]))[-1])
    p_value = p_values(times, evidence.scores)[-1]
    adjusted, detectable = corrected(p_value, evidence.stable, correction), scale.detectable(times, alpha)
    decided = adjusted <= alpha
    return SegmentEffects(
        np.where(said, scale.effect, np.nan),
        *scale.interval(critical, said),
        *scale.interval(joint, said),
        *scale.contribution(critical, said),
        p_value,
        adjusted,
        decided,
        detectable,
        reasons(evidence.stable, scale.known, np.isfinite(critical), decided, detectable, smallest),
        narrower_bounds(evidence.stable),
        scale.effect,
        ArmCounts.of(evidence.stable),
    )


def average_effects(evidence: TrialEvidence, everybody: TrialEvidence | None = None) -> AverageEffects:
    """Return the average effects after the last look, a family of their own, corrected by Holm.

    everybody: what people tell who are asked about everybody, where some are.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    found = combined(evidence, everybody)
    said = found.ready & np.isfinite(critical)
    scored = combined_scores(evidence, everybody)
    p_value = p_values(times, scored)[-1]
    adjusted, together = holm(p_value), evidence.common.together
    unsaid = unsaid_reasons(together)[0]
    estimate = np.where(said, found.estimate, np.nan)
    below, above = estimate, estimate
    if np.isfinite(critical):
        below, above = agreeing(found.estimate, combined_sides(evidence, everybody, critical), scored[-1], critical)
    return AverageEffects(
        estimate,
        estimate - critical * np.sqrt(below),
        estimate + critical * np.sqrt(above),
        p_value,
        adjusted,
        adjusted <= alpha,
        _to_come(times, alpha) * np.sqrt(found.variance),
        np.where(said, found.contributions, np.nan),
        np.where(found.ready | np.isin(unsaid, NO_INTERVAL), unsaid, too_few(together)[0]),
        narrower_bounds(together)[0],
        np.where(together.somebody, found.estimate, np.nan),
        ArmCounts.of(together).at(0),
    )


def half_widths(evidence: TrialEvidence) -> Array:
    """Return half of the length of effects' intervals after the last look, (J, K); nan where there is none.

    Shares of people that hits do not tell are taken as planned.
    """
    critical = evidence.critical
    low, high = _scale(evidence, None, critical).interval(critical, evidence.stable.ready)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, np.where(bounded, high, 0.0) - np.where(bounded, low, 0.0), np.nan) / 2


def control_rate(evidence: TrialEvidence) -> MeasuredRate | None:
    """Return the control's mean reward among people of all segments; None before it has enough hits.

    A share t of positive hits is 1/2 + q p (f - 1/2) / v, with f the mean reward and v what hits a person has; the
    shares p of all segments add up to 1, and q p is v - 2 o where hits are counted.
    """
    if not evidence.looks or not evidence.common.together.ready.any():
        return None
    sums = evidence.common.together
    cell = 0, int(sums.ready[0].argmax())
    rate, q, o, _ = (float(part[cell]) for part in rates(sums))
    own = rate - 2 * o if evidence.design.counted else q / len(evidence.design.segments)
    if own <= 0:
        return None
    share = float(sums.num[cell][1] / sums.den[cell][1])
    deviation = float(np.sqrt(sums.own_variances[cell][1]))
    return MeasuredRate.normal(0.5 + rate / own * (share - 0.5), rate / own * deviation)


def stopped_effect(evidence: TrialEvidence) -> StoppedEffect:
    """Return the effect of a trial of one treatment in one segment, which a rule about it ended at its last look."""
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = (part[0, 0] for part in rates(sums))
    gain = rate / (rate - 2 * o) if design.counted else 1 / (q * design.segments[0])
    deviation = float(np.sqrt(sums.own_variances[0, 0].sum()))
    score = float(sums.difference[0, 0]) / deviation
    return stagewise(evidence.times, design.alpha, score, float(gain) * deviation)


def _scale(evidence: TrialEvidence, asked: Shares | None, critical: float) -> _Scale:
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = rates(sums)
    top, variance = rate / q * sums.difference, scaled_variance(sums.variance, rate / q)
    counts = np.zeros_like(top)
    shares = people_shares(evidence, asked)
    if design.counted:
        bottom, counts = (rate - 2 * o) / q, np.square(sums.difference) * shares.variance[:, None]
        # The share's error moves the top as well; what remains of it beside the bottom's is the share of others' hits.
        uncertainty = shares.variance[:, None] * np.square(2 * o / np.maximum(rate, 1e-12))
    else:
        bottom = np.broadcast_to(shares.estimate[:, None], top.shape)
        uncertainty = np.broadcast_to(shares.variance[:, None], top.shape)
    least = critical if np.isfinite(critical) else 0.0
    known = shares.estimate > least * np.sqrt(shares.variance)
    known_too = np.broadcast_to(known[:, None], top.shape)
    return _Scale(sums, top, variance, bottom, uncertainty, known_too, counts)


def _to_come(times: tuple[float, ...], alpha: float) -> float:
    """Return the detectable effect at the end of plan, in current standard deviations, if nobody looks in between."""
    ahead = times if times[-1] >= 1 else (*times, 1.0)
    return drift_of(ahead, alpha, POWER) * float(np.sqrt(times[-1]))
