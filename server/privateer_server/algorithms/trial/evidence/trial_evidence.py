"""The evidence of a trial: weighted hits of each arm and its control, their scores, and averages over segments."""

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from privateer_core.arrays import Array, Bools
from privateer_server.algorithms.trial.evidence.epochs import (
    Epoch,
    TrialDesign,
    common_weights,
    contrast_variances,
    stable_weights,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, rates, standardized_scores
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions

_PRIOR_RARE_OUTCOMES: Final = 20.0
"""Rare outcomes, positive or negative, with which a segment's mean counts as much as that of all segments."""


@dataclass(frozen=True)
class Average:
    """Average effects of K treatments, post-stratified: sums of contributions, shape (K,) each.

    ``contributions`` (J, K) are shares of people times effects.
    """

    estimate: Array
    variance: Array
    is_ready: Bools
    contributions: Array

    @property
    def scores(self) -> Array:
        """Shape (K,): estimate over standard deviation, nan where not ready."""
        usable = self.is_ready & (self.variance > 0) & np.isfinite(self.variance)
        return np.where(usable, self.estimate / np.sqrt(np.where(usable, self.variance, 1.0)), np.nan)


def average_contributions(sums: Sums, design: TrialDesign) -> Average:
    """Return the sum of contributions over all segments.

    With v a segment's share of hits, q what is kept and d its difference in positive hits: the average is the sum of
    contributions c = (v/q) d. Its variance is that of the differences, and of the segments' shares of hits, which are
    multinomial: (sum c^2/v - average^2)/n. Hits of public slots have no such variance.

    A segment that is not ready, which may have nobody, is told from public numbers of people instead of its hits
    (`estimate_from_people`). The average is ready when everybody's hits together are.
    """
    rate, q, _, _ = rates(sums)
    values = HitValues.from_segments(sums)
    small_values, small_variances = estimate_from_people(sums, values, best_centres(sums, values))
    contributions = np.where(sums.is_ready, rate / q * sums.difference, small_values[..., 0] - small_values[..., 1])
    variance = _add_variances(sums, design, contributions, sums.variance, small_variances)
    if sums.values is not None:
        # Numbers vary in each arm by their own, as `scores` takes them to.
        _, arm_variances = estimate_from_people(sums, HitValues.from_arms(sums), best_centres(sums, values))
        own_variances = sums.own_variances.sum(axis=-1)
        variance = np.maximum(variance, _add_variances(sums, design, contributions, own_variances, arm_variances))
    return Average(contributions.sum(axis=0), variance, np.asarray(sums.pooled.is_ready[0]), contributions)


def side_variances(sums: Sums, design: TrialDesign, contributions: Array, critical: float) -> tuple[Array, Array]:
    """Return the variances of an average for the lower and the upper end of its interval, (K,) each.

    They add up what each arm's own rewards vary, as `Sums.side_variances` says it of a segment that is ready.
    """
    values = HitValues.from_segments(sums)
    _, small = estimate_from_people(sums, HitValues.from_arms(sums), best_centres(sums, values))
    low, high = (_add_variances(sums, design, contributions, side, small) for side in sums.side_variances(critical))
    return low, high


def _add_variances(sums: Sums, design: TrialDesign, contributions: Array, variance: Array, small: Array) -> Array:
    """Return the sum of variances of differences, (J, K), by participants and arm in segments that are not ready."""
    rate, q, _, people = rates(sums)
    ready_variances = np.where(sums.is_ready & np.isfinite(variance), variance, 0.0)
    noise = np.square(sums.difference / q) * sums.hits_noise / np.square(sums.people)
    total = np.where(sums.is_ready, np.square(rate / q) * ready_variances + noise, small.sum(axis=-1)).sum(axis=0)
    if design.counted:
        squared_shares = np.where(sums.is_ready, rate / q * np.square(sums.difference) / q, 0.0).sum(axis=0)
        share_variance = squared_shares - np.square(contributions.sum(axis=0))
        total = total + np.maximum(share_variance, 0.0) / people.mean(axis=0)
    return np.asarray(total)


def join_averages(summed: Average, direct: Average, weight: float) -> Average:
    """Return the weighted average of two averages of different participants.

    Scores are added with public weights, a and b with a^2 + b^2 = 1, as those of stages are (Lehmacher and Wassmer
    1999): looks then correlate as those of each part do, whatever either varies by. The estimate is the one that has
    this score: both, weighted with a and b over their standard deviations.

    summed, direct: the sum over segments, and the average of people who were asked about everybody.
    weight: share of the planned information that the latter have, a^2.
    """
    is_ready = _are_both_ready(summed, direct)
    a, b = joint_weights(summed, direct, weight)
    estimate = (a * direct.estimate + b * summed.estimate) / (a + b)
    return Average(estimate, np.where(is_ready, 1 / np.square(a + b), np.inf), is_ready, summed.contributions)


def _are_both_ready(summed: Average, direct: Average) -> Bools:
    has_variance = (summed.variance > 0) & (direct.variance > 0) & np.isfinite(summed.variance)
    return np.asarray(summed.is_ready & direct.is_ready & has_variance)


def joint_weights(summed: Average, direct: Average, weight: float) -> tuple[Array, Array]:
    """Return the weights of the direct average and of the sum over segments, (K,) each, up to a factor."""
    is_ready = _are_both_ready(summed, direct)
    a = np.sqrt(weight / np.where(is_ready, direct.variance, 1.0))
    return a, np.sqrt((1 - weight) / np.where(is_ready, summed.variance, 1.0))


@dataclass(frozen=True)
class HitValues:
    """Mean and variance of a hit's value, of both arms of a contrast, (J, K) each; or of each arm, (J, K, 2)."""

    mean: Array
    variance: Array

    @classmethod
    def from_segments(cls, sums: Sums) -> Self:
        """Return each segment's moments, shrunk to those of all segments.

        With t a segment's effective hits, f the mean of all segments, or what it lacks of 1 where that is less, and s^2
        the variance, its own count t f^2/(t f^2 + 20 s^2): of rare rewards half where 20 people had some.
        """
        everybody, segment_values = cls._from_moments(sums.pooled), cls._from_moments(sums)
        hits, square = sums.den.sum(axis=-1), sums.square.sum(axis=-1)
        information = _divide(np.square(hits), square, 0.0) * np.square(np.minimum(everybody.mean, 1 - everybody.mean))
        weight = _divide(information, information + _PRIOR_RARE_OUTCOMES * everybody.variance, 0.0)
        mean = weight * segment_values.mean + (1 - weight) * everybody.mean
        squares = weight * segment_values._square + (1 - weight) * everybody._square
        return cls(mean, np.maximum(squares - np.square(mean), 0.0))

    @classmethod
    def from_arms(cls, sums: Sums) -> Self:
        """Return each arm's moments, shrunk to the same arm's of all segments."""
        everybody = sums.pooled
        information = sums.people_of_arms * np.square(np.minimum(everybody.middle, 1 - everybody.middle))[..., None]
        weight = _divide(information, information + _PRIOR_RARE_OUTCOMES * everybody.variance_by_arm, 0.0)
        means, all_means = np.clip(sums.means, 0.0, 1.0), np.clip(everybody.means, 0.0, 1.0)
        mean = weight * means + (1 - weight) * all_means
        squares = weight * (sums.variance_by_arm + np.square(means)) + (1 - weight) * (
            everybody.variance_by_arm + all_means**2
        )
        return cls(mean, np.maximum(squares - np.square(mean), 0.0))

    @classmethod
    def _from_moments(cls, sums: Sums) -> Self:
        mean = np.clip(_divide(sums.num.sum(axis=-1), sums.den.sum(axis=-1), 0.5), 0.0, 1.0)
        return cls(mean, mean * (1 - mean) if sums.values is None else sums.spread_of_hits)

    @property
    def _square(self) -> Array:
        return np.asarray(self.variance + np.square(self.mean))


def best_centres(sums: Sums, values: HitValues) -> Array:
    """Return the centres c in [0, 1], (J, K), at which the sums of w (W - c T) have the least variance.

    Without noise that is what a hit counts on average. A curator's noise varies least at 1/2.
    """
    square, noise = np.maximum(sums.square.sum(axis=-1), 0.0), sums.noise_of_hits.sum(axis=-1)
    return np.asarray(0.5 + _divide(square, square + noise, 0.0) * (values.mean - 0.5))


def estimate_from_people(sums: Sums, values: HitValues, centre: Array) -> tuple[Array, Array]:
    """Return shares of people times (mean reward - centre) of both arms, and variances, (J, K, 2), however few people.

    With c the centre, the sum of w (W - c T) over an arm's hits expects u n (q p (f - c) + o (1 - 2 c)): p is the share
    of people and f their mean reward. A hit varies it by w^2 (s^2 + (f' - c)^2), with f' and s^2 the mean and variance
    of what hits count, and a curator by its noise (Horvitz and Thompson 1952). Where hits are public slots, the values
    differ from those named by a number of the segment, the same for both arms.

    values: of both arms together, and each of them.
    centre: shape (J, K).
    """
    c, scale = centre[..., None], sums.keep[..., None]
    other_hits = (1 - 2 * c) * sums.other[..., None]
    mean, variance = (m if m.ndim == sums.num.ndim else m[..., None] for m in (values.mean, values.variance))
    mean_squares = variance + np.square(mean - c)
    variances = np.maximum(sums.square, 0.0) * mean_squares + sums.noise_about(centre)
    return (sums.num - c * sums.den - other_hits) / scale, variances / np.square(scale)


def _divide(numerator: Array, denominator: Array, default: float) -> Array:
    is_positive = denominator > 0
    return np.asarray(np.where(is_positive, numerator / np.where(is_positive, denominator, 1.0), default))


@dataclass(frozen=True)
class TrialEvidence:
    """The sum of a trial's releases."""

    design: TrialDesign  # what was planned
    people: Array  # shape (looks,): all reports up to each look
    # with weights u = sqrt(V0/V), V an epoch's variance and V0 the same at planned shares: every epoch adds variance as
    # planned whatever its shares, so that looks correlate as boundaries assume (Lehmacher and Wassmer 1999,
    # variance-stabilising weights of Hadad et al. 2021). For intervals.
    stable: Sums
    precise: Sums  # with weights V0/V: the least variance. For allocation, and for curves without intervals.
    # with one weight for all segments, sqrt(sum V0/sum V): for sums over segments. With a weight of its own a segment
    # that looks extreme early counts more in such a sum, which is then found to differ from 0 too often.
    common: Sums
    scores: Array  # shape (looks, J, K): the difference over its standard deviation at each look; nan where not `ready`
    # shape (looks, K): the same of the average effect over segments; nan until everybody's hits together are ready
    average_scores: Array

    @classmethod
    def begin(cls, design: TrialDesign) -> Self:
        """Return the evidence without releases."""
        contrasts, no_sums = (len(design.segments), len(design.arms) - 1), Sums.empty(design)
        no_looks = np.zeros((0, *contrasts))
        return cls(design, np.zeros(0), no_sums, no_sums, no_sums, no_looks, np.zeros((0, contrasts[1])))

    def add(self, epoch: Epoch) -> "TrialEvidence":
        """Return the evidence with an epoch, which ends with a look."""
        planned, actual = contrast_variances(self.design, epoch)
        stable = self.stable.add(epoch, stable_weights(self.design, epoch))
        n_before = self.people[-1] if len(self.people) else 0.0
        updated = replace(
            self,
            people=np.append(self.people, n_before + epoch.people),
            stable=stable,
            precise=self.precise.add(epoch, planned / actual),
            common=self.common.add(epoch, common_weights(planned, actual)),
        )
        return replace(
            updated,
            scores=np.concatenate([self.scores, standardized_scores(stable)[None]]),
            average_scores=np.concatenate([self.average_scores, updated.average.scores[None]]),
        )

    @property
    def looks(self) -> int:
        """The number of epochs added."""
        return len(self.people)

    @property
    def times(self) -> tuple[float, ...]:
        """Information fractions of the looks."""
        return information_fractions(self.people, self.design.people)

    @property
    def critical(self) -> float:
        """Critical value of the last look; infinite where that has no boundary."""
        return float(critical_values(self.times, self.design.alpha)[-1])

    @property
    def average(self) -> "Average":
        """The effect averaged over all segments, by participants."""
        return average_contributions(self.common, self.design)

    def average_sides(self, critical: float) -> tuple[Array, Array]:
        """Return variances of the average effects for the lower and the upper end of their intervals, (K,) each."""
        return side_variances(self.common, self.design, self.average.contributions, critical)
