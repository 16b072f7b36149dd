"""A trial's treatment effects, by segment and on average: intervals, decisions, and where nothing is said, why."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.shares import Shares, ShareSource
from privateer_server.algorithms.trial.evidence.averages import Average, HitValues, by_people
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, rates, scaled_variance
from privateer_server.algorithms.trial.group_sequential import (
    POWER,
    StoppedEffect,
    critical_values,
    drift_of,
    p_values,
    stagewise,
)
from privateer_server.algorithms.trial.reasons import NO_INTERVAL, ReasonCode, narrower_bounds, reasons, unsaid_reasons

Array = NDArray[np.float64]
_TOLD: Final = 2.0
"""Standard deviations by which a share of people must be above what a segment without anybody shows."""
Correction = Literal["holm", "bh"]


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


def weight_of(summed: TrialEvidence, everybody: TrialEvidence) -> float:
    """Return the share of the planned information that people have who are asked about everybody."""
    direct = everybody.design.precision
    return direct / (direct + summed.design.precision)


def joined(summed: Average, direct: Average, weight: float) -> Average:
    """Join two averages of different people.

    Scores are added with public weights, a and b with a^2 + b^2 = 1, as those of stages are (Lehmacher and Wassmer
    1999): looks then correlate as those of each part do, whatever either varies by. The estimate is the one that has
    this score: both, weighted with a and b over their standard deviations.

    Parameters
    ----------
    summed, direct
        The sum over segments, and the average of people who were asked about everybody.
    weight
        Share of the planned information that the latter have, a^2.
    """
    ready = summed.ready & direct.ready & (summed.variance > 0) & (direct.variance > 0) & np.isfinite(summed.variance)
    a = np.sqrt(weight / np.where(ready, direct.variance, 1.0))
    b = np.sqrt((1 - weight) / np.where(ready, summed.variance, 1.0))
    estimate = (a * direct.estimate + b * summed.estimate) / (a + b)
    return Average(estimate, np.where(ready, 1 / np.square(a + b), np.inf), ready, summed.contributions)


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


def holm(p_values: Array) -> Array:
    """Return adjusted p-values: at most alpha, they name a true null with that probability at most (Holm 1979)."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    adjusted = np.maximum.accumulate(flat[order] * np.arange(len(flat), 0, -1))
    return _back(adjusted, order, p_values)


def benjamini_hochberg(p_values: Array) -> Array:
    """Return adjusted p-values: of those at most alpha, a share of alpha at most are true nulls on average."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    scaled = flat[order] * len(flat) / np.arange(1, len(flat) + 1)
    return _back(np.minimum.accumulate(scaled[::-1])[::-1], order, p_values)


def _back(adjusted: Array, order: NDArray[np.int64], like: Array) -> Array:
    found = np.empty(len(order))
    found[order] = np.minimum(adjusted, 1.0)
    return found.reshape(like.shape)


_CORRECTIONS: Final = {"holm": holm, "bh": benjamini_hochberg}


def corrected(p_values: Array, sums: Sums, correction: Correction) -> Array:
    """Return p-values (J, K) adjusted for all effects; where nobody was counted there is none."""
    adjusted, somebody = np.ones(p_values.shape), sums.somebody
    adjusted[somebody] = _CORRECTIONS[correction](p_values[somebody])
    return adjusted


@dataclass(frozen=True)
class SegmentEffects:
    """Effects after the last look, shape (J, K) each; intervals of all looks hold at once, at the design's alpha.

    Attributes
    ----------
    estimate, low, high
        Mean reward under the treatment less that under the control. nan without an interval.
    joint_low, joint_high
        Intervals that all hold at once, with the boundary of alpha/(J K).
    contribution, contribution_low, contribution_high
        The effect times the segment's share of people: what it adds to the average.
    p_value, adjusted, decided
        Sequential p-value, the same corrected for all effects, and whether that is at most alpha.
    detectable
        Effect that is found with probability .8 by the end of plan; infinite where the share is unknown.
    reason
        A `ReasonCode` each, int64.
    bounds
        Shape (J, K, 2): bounds within those of rewards that hold the rewards and resolve more.
    rough
        The estimate, also without an interval; nan where nobody is.
    bearers
        How many equal rewards would bear a mean as uncertain as that of the arm with fewer of them.
    rare
        Shape (J, K, 2): how many people of each arm had the rarer outcome of bits.
    """

    estimate: Array
    low: Array
    high: Array
    joint_low: Array
    joint_high: Array
    contribution: Array
    contribution_low: Array
    contribution_high: Array
    p_value: Array
    adjusted: Array
    decided: NDArray[np.bool_]
    detectable: Array
    reason: NDArray[np.int64]
    bounds: Array
    rough: Array
    bearers: Array
    rare: Array


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
    bearers: Array
    rare: Array


@dataclass(frozen=True)
class _Scale:
    """The ratio that makes a difference of positive hits an effect: top/bottom, as `fieller` takes them, (J, K) each.

    ``deviation`` is that of the top, a contribution, with what the number of a segment's hits varies.
    """

    top: Array
    variance: Array
    bottom: Array
    uncertainty: Array
    known: NDArray[np.bool_]
    deviation: Array

    @property
    def effect(self) -> Array:
        """Shape (J, K): top/bottom; nan where the bottom is not known."""
        return np.where(self.known, self.top / np.where(self.known, self.bottom, 1.0), np.nan)

    def interval(self, critical: float, ready: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return the ends; nan where there is no interval; unbounded where the share is not told from 0."""
        if not np.isfinite(critical):
            nothing = np.full(self.top.shape, np.nan)
            return nothing, nothing
        low, high = fieller(self.top, self.variance, self.bottom, self.uncertainty, critical)
        low, high = np.where(self.known, low, -np.inf), np.where(self.known, high, np.inf)
        return np.where(ready, low, np.nan), np.where(ready, high, np.nan)

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

    Parameters
    ----------
    asked
        Segments' shares, where people were asked for them.
    smallest
        The effect that the owner wants to find.
    correction
        ``holm``: alpha bounds the probability of any wrong decision; ``bh``: the expected share of wrong ones.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    scale, ready = _scale(evidence, asked, critical), evidence.stable.ready
    said = ready & np.isfinite(critical)
    joint = float(critical_values(times, alpha / max(1, int(evidence.stable.somebody.sum()) * scale.top.shape[1]))[-1])
    half = np.where(said, critical * scale.deviation if np.isfinite(critical) else 0.0, np.nan)
    p_value = p_values(times, evidence.scores)[-1]
    adjusted, detectable = corrected(p_value, evidence.stable, correction), scale.detectable(times, alpha)
    decided = adjusted <= alpha
    return SegmentEffects(
        np.where(said, scale.effect, np.nan),
        *scale.interval(critical, said),
        *scale.interval(joint, said),
        np.where(said, scale.top, np.nan),
        scale.top - half,
        scale.top + half,
        p_value,
        adjusted,
        decided,
        detectable,
        reasons(evidence.stable, scale.known, np.isfinite(critical), decided, detectable, smallest),
        narrower_bounds(evidence.stable),
        scale.effect,
        evidence.stable.bearers,
        evidence.stable.rare,
    )


def average_effects(evidence: TrialEvidence, everybody: TrialEvidence | None = None) -> AverageEffects:
    """Return the average effects after the last look, a family of their own, corrected by Holm.

    Parameters
    ----------
    everybody
        What people tell who are asked about everybody, where some are.
    """
    times, alpha, critical = evidence.times, evidence.design.alpha, evidence.critical
    found = combined(evidence, everybody)
    deviation = np.sqrt(found.variance)
    said = found.ready & np.isfinite(critical)
    half = np.where(said, critical * np.where(said, deviation, 0.0) if np.isfinite(critical) else 0.0, np.nan)
    p_value = p_values(times, combined_scores(evidence, everybody))[-1]
    adjusted, together = holm(p_value), evidence.common.together
    unsaid = unsaid_reasons(together)[0]
    estimate = np.where(said, found.estimate, np.nan)
    return AverageEffects(
        estimate,
        estimate - half,
        estimate + half,
        p_value,
        adjusted,
        adjusted <= alpha,
        _to_come(times, alpha) * deviation,
        np.where(said, found.contributions, np.nan),
        np.where(found.ready | np.isin(unsaid, NO_INTERVAL), unsaid, ReasonCode.NOISE),
        narrower_bounds(together)[0],
        np.where(together.somebody, found.estimate, np.nan),
        together.bearers[0],
        together.rare[0],
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
    deviation = float(np.sqrt(sums.variances[cell][1]))
    return MeasuredRate.normal(0.5 + rate / own * (share - 0.5), rate / own * deviation)


def stopped_effect(evidence: TrialEvidence) -> StoppedEffect:
    """Return the effect of a trial of one treatment in one segment, which a rule about it ended at its last look."""
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = (part[0, 0] for part in rates(sums))
    gain = rate / (rate - 2 * o) if design.counted else 1 / (q * design.segments[0])
    score, deviation = float(evidence.scores[-1, 0, 0]), float(gain * np.sqrt(sums.variance[0, 0]))
    return stagewise(evidence.times, design.alpha, score, deviation)


def _scale(evidence: TrialEvidence, asked: Shares | None, critical: float) -> _Scale:
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = rates(sums)
    top, variance = rate / q * sums.difference, scaled_variance(sums, rate / q)
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
    return _Scale(top, variance, bottom, uncertainty, known_too, np.sqrt(variance + counts))


def _to_come(times: tuple[float, ...], alpha: float) -> float:
    """Return the detectable effect at the end of plan, in current standard deviations, if nobody looks in between."""
    ahead = times if times[-1] >= 1 else (*times, 1.0)
    return drift_of(ahead, alpha, POWER) * float(np.sqrt(times[-1]))
