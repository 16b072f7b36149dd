"""Weighted sums of a trial's releases: rates of each arm and its control, and their variances."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Self

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from privateer_core.answer.estimates import MIN_EFFECTIVE_REWARDS
from privateer_core.arrays import Array, Bools
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign, pair_with_control
from privateer_server.algorithms.trial.evidence.variances import ValueSums, common_rate, score_limits

_MIN_PEOPLE: Final = (5.0, 10.0)
"""People that both arms need for an interval where there is no noise: of bits, and of numbers."""
_MIN_RARE_OUTCOMES: Final = (2.0, MIN_EFFECTIVE_REWARDS)
"""What bears the mean of each arm before there is an interval without noise: of the rarer of two outcomes so many at
the common rate, and of numbers rewards that bear it alike (`Sums.n_effective_rewards`)."""
_MIN_RARE_OUTCOMES_WITH_NOISE: Final = 20.0
"""The same where there is noise, beside which means are less certain than their number says."""
_MIN_PEOPLE_WITH_NOISE: Final = (40.0, 100.0)
"""People that both arms need where there is noise: of bits, and of numbers."""
_STRICT_FACTOR: Final = 1 - 1e-9
_PRIOR_RARE_OUTCOMES: Final = 2.0
"""Rare outcomes with which an arm's own rate counts as much as that of both, where only its variance is meant."""
_HIDDEN_VARIANCE_DEVIATIONS: Final = 2.0  # standard deviations of noise below which a variance is not told from 0
_DETECTION_DEVIATIONS: Final = 2.0
"""Standard deviations of the noise of an arm's hits below which nobody is told from it."""
_MIN_HITS_DEVIATIONS: Final = 10.0  # standard deviations of the noise of an arm's hits that the hits must reach


@dataclass(frozen=True)
class Sums:
    """Weighted sums over epochs by contrast (segment, treatment). The last axis of four is (treatment, control)."""

    # num, den, square, noise: shape (J, K, 2): sums of w W, w T, w^2 T and w^2 L, with w = u / pi
    num: Array
    den: Array
    square: Array
    noise: Array
    # people, spread: shape (J, K): sums of u n and u^2 n
    people: Array
    spread: Array
    # keep, other: shape (J, K): sums of u n q and u n o
    keep: Array
    other: Array
    # hits, hits_noise: shape (J, K): sum of u times the hits of all arms, and the variance that releases added to it
    hits: Array
    hits_noise: Array
    # what tells how much rewards vary that are numbers; None: they are bits, whose mean tells
    values: ValueSums | None = None

    @classmethod
    def empty(cls, design: TrialDesign) -> Self:
        """Return the sums of no releases."""
        contrasts = (len(design.segments), len(design.arms) - 1)
        zero_pairs, zeros = np.zeros((*contrasts, 2)), np.zeros(contrasts)
        values = ValueSums.empty(contrasts) if design.numeric else None
        return cls(zero_pairs, zero_pairs, zero_pairs, zero_pairs, zeros, zeros, zeros, zeros, zeros, zeros, values)

    def add(self, epoch: Epoch, weights: Array) -> "Sums":
        """Return the sums with an epoch of weights u, shape (J, K)."""
        u, arms = weights, epoch.shares.shape[1]
        w = u[..., None] / pair_with_control(epoch.shares)
        n, hits = epoch.people, epoch.hits.sum(axis=1)[:, None]
        squares = pair_with_control(epoch.positive if epoch.squares is None else epoch.squares)
        values = self.values and self.values.add(w, squares, epoch.noise, epoch.parts, epoch.resolution)
        return Sums(
            self.num + w * pair_with_control(epoch.positive),
            self.den + w * pair_with_control(epoch.hits),
            self.square + np.square(w) * pair_with_control(epoch.hits),
            self.noise + np.square(w) * epoch.noise,
            self.people + u * n,
            self.spread + np.square(u) * n,
            self.keep + u * n * epoch.keep,
            self.other + u * n * epoch.other,
            self.hits + u * hits,
            self.hits_noise + np.square(u) * epoch.parts.count * arms * epoch.noise,
            values,
        )

    @cached_property
    def means(self) -> Array:
        """Shape (J, K, 2): share of positive hits, or mean of what hits count; 0 without hits."""
        return np.asarray(self.num / np.where(self.den > 0, self.den, np.inf))

    @cached_property
    def people_of_arms(self) -> Array:
        """Shape (J, K, 2): the effective sample size of each mean (Kish 1965); 1 without hits."""
        has_hits = (self.den > 0) & (self.square > 0)
        return np.where(has_hits, np.square(self.den) / np.where(has_hits, self.square, 1.0), 1.0)

    @property
    def difference(self) -> Array:
        """Shape (J, K): share of positive hits under the treatment less that under the control; 0 without hits."""
        return np.asarray(self.means[..., 0] - self.means[..., 1])

    @cached_property
    def middle(self) -> Array:
        """Shape (J, K): of bits, the maximum likelihood common rate of both arms; of numbers, the mean of the means."""
        if self.values is None:
            return common_rate(self.means, self.people_of_arms, self._noise_of_means)
        return np.asarray(np.clip(self.means.mean(axis=-1), 0.0, 1.0))

    @property
    def _noise_of_means(self) -> Array:
        """Shape (J, K, 2): the noise of positive and of negative hits each, over their squared number."""
        return np.asarray(self.noise / np.square(np.where(self.den > 0, self.den, np.inf)))

    @property
    def variances(self) -> Array:
        """Shape (J, K, 2): of the two shares of positive hits, where both arms are alike; infinite without hits.

        By what both arms together vary, not by each, so that an arm seldom played does not misjudge its own variance.
        """
        has_hits = self.den > 0
        sum_variances = np.maximum(self.spread_of_hits[..., None] * self.square, 0.0) + self.noise_about(self.middle)
        return np.where(has_hits, sum_variances / np.square(np.where(has_hits, self.den, 1.0)), np.inf)

    @cached_property
    def spread_of_hits(self) -> Array:
        """Shape (J, K): the variance of what a hit counts, of both arms together; of bits by their middle."""
        if self.values is None:
            return np.asarray(self.middle * (1 - self.middle))
        return self.values.variance(self.num, self.den)

    @property
    def noise_of_hits(self) -> Array:
        """Shape (J, K, 2): variance of noise in the sums of hits."""
        return 2 * self.noise if self.values is None else self.values.noise_variance(0.0, 1.0, 0.0)

    def noise_about(self, centre: Array | float) -> Array:
        """Return the variance (J, K, 2) of noise in the sum of what hits count above a centre, (J, K)."""
        return self._noise_about_means(np.asarray(centre)[..., None])

    def _noise_about_means(self, centres: Array) -> Array:
        """Return the same above a centre of each arm, (J, K, 2) or (J, K, 1)."""
        if self.values is None:
            return np.asarray(self.noise * (np.square(centres) + np.square(1 - centres)))
        return self.values.noise_variance(1.0, -centres, 0.0)

    @property
    def variance(self) -> Array:
        """Shape (J, K): of `difference`, where both arms are alike."""
        return np.asarray(self.variances.sum(axis=-1))

    @cached_property
    def variance_by_arm(self) -> Array:
        """Shape (J, K, 2): the variance of what a hit counts in each arm; of rare bits drawn to that of both arms."""
        if self.values is not None:
            return self.values.variances_of_arms(self.num, self.den, self.people_of_arms)
        middle = self.middle[..., None]
        rare = self.people_of_arms * np.minimum(middle, 1 - middle)
        rates = (rare * np.clip(self.means, 0.0, 1.0) + _PRIOR_RARE_OUTCOMES * middle) / (rare + _PRIOR_RARE_OUTCOMES)
        return np.asarray(rates * (1 - rates))

    @cached_property
    def own_variances(self) -> Array:
        """Shape (J, K, 2): of the two shares of positive hits, each by what its own arm varies; infinite without."""
        noise = self._noise_about_means(np.clip(self.means, 0.0, 1.0))
        sum_variances = np.maximum(self.variance_by_arm * self.square, 0.0) + noise
        return np.where(self.den > 0, sum_variances / np.square(np.where(self.den > 0, self.den, 1.0)), np.inf)

    def side_variances(self, critical: float) -> tuple[Array, Array]:
        """Return variances of `difference` for the lower and the upper end of its interval, (J, K) each, or infinity.

        Each end is as many of its deviations away as the critical value says, so that ends combine as deviations do
        (Zou and Donner 2008). Of bits they are those of the score test, of numbers those of each arm's own variance
        (Welch 1947). Infinite without hits.
        """
        if self.values is None:
            low, high = score_limits(self.means, self.people_of_arms, self._noise_of_means, critical)
            sides = np.square(self.difference - low) / critical**2, np.square(high - self.difference) / critical**2
            has_hits = (self.den > 0).all(axis=-1)
            return np.where(has_hits, sides[0], np.inf), np.where(has_hits, sides[1], np.inf)
        quantile_ratio = stdtrit(self.degrees_of_freedom, ndtr(critical)) / critical
        variance = self.own_variances.sum(axis=-1) * np.square(quantile_ratio)
        return align_ends(self.difference, (variance, variance), standardized_scores(self), critical)

    @property
    def degrees_of_freedom(self) -> Array:
        """Shape (J, K): degrees of freedom of the variance by each arm's own (Satterthwaite 1946)."""
        parts = np.where(np.isfinite(self.own_variances), self.own_variances, 0.0)
        divisors = (np.square(parts) / np.maximum(self.people_of_arms - 1, 1.0)).sum(axis=-1)
        return np.where(divisors > 0, np.square(parts.sum(axis=-1)) / np.where(divisors > 0, divisors, 1.0), np.inf)

    @cached_property
    def is_ready(self) -> Bools:
        """Shape (J, K): whether there is enough for an interval. A function of releases."""
        return ~(self.has_few_people | self.has_noise | self.has_few_rare | self.is_unresolved)

    @cached_property
    def can_steer(self) -> Bools:
        """Shape (J, K): whether there is enough evidence to adapt shares without starving an arm by early events."""
        has_people = self._has_people(_MIN_PEOPLE_WITH_NOISE[self.values is not None])
        return np.asarray(self.is_ready & has_people & self._has_rare_outcomes(_MIN_RARE_OUTCOMES_WITH_NOISE))

    @cached_property
    def has_few_people(self) -> Bools:
        """Shape (J, K): whether an arm has too few participants, whatever their rewards are."""
        return ~self._has_people(self.min_people) & ~self.has_noise

    @property
    def min_people(self) -> Array:
        """Shape (J, K): the number of participants that each arm needs for an interval."""
        kind = self.values is not None
        return np.where(self.is_randomized, _MIN_PEOPLE_WITH_NOISE[kind], _MIN_PEOPLE[kind])

    @property
    def min_rare_outcomes(self) -> Array:
        """Shape (J, K): the number of rarer outcomes, or of equal rewards, that each arm's mean needs."""
        return np.where(self.is_randomized, _MIN_RARE_OUTCOMES_WITH_NOISE, _MIN_RARE_OUTCOMES[self.values is not None])

    def _has_people(self, min_people: Array | float) -> Bools:
        """Shape (J, K): whether both arms have this effective number of participants."""
        has_enough = (self.den > 0) & (np.square(self.den) >= np.asarray(min_people)[..., None] * self.square)
        return np.asarray(has_enough.all(axis=-1))

    @property
    def is_randomized(self) -> Bools:
        """Shape (J, K): whether a server or people themselves added noise to what was counted."""
        return np.asarray((self.noise_of_hits > 0).any(axis=-1) | (self.other > 0) | (self.keep < self.people))

    @cached_property
    def has_noise(self) -> Bools:
        """Shape (J, K): whether the hits of an arm are too few relative to their noise."""
        return np.asarray((self.den < _MIN_HITS_DEVIATIONS * np.sqrt(self.noise_of_hits)).any(axis=-1))

    @cached_property
    def has_nobody(self) -> Bools:
        """Shape (J, K): whether the hits of an arm are indistinguishable from noise."""
        deviations = np.sqrt(self.noise_of_hits)
        return np.asarray(((deviations > 0) & (self.den < _DETECTION_DEVIATIONS * deviations)).any(axis=-1))

    @cached_property
    def has_few_rare(self) -> Bools:
        """Shape (J, K): whether too few rewards determine the mean of an arm, unless noise hides their variance."""
        return ~(self._has_rare_outcomes(self.min_rare_outcomes) | self.is_variance_within_noise)

    @property
    def is_inhabited(self) -> Bools:
        """Shape (J,): whether any hit was counted; with noise also in empty segments."""
        return np.asarray((self.hits != 0).any(axis=1))

    @property
    def rare_people(self) -> Array:
        """Shape (J, K, 2): the estimated number of rarer outcomes of bits in each arm; 0 without hits."""
        has_hits = self.square > 0
        people = np.where(has_hits, np.square(self.den) / np.where(has_hits, self.square, 1.0), 0.0)
        is_yes = (self.middle <= 0.5)[..., None]
        return np.asarray(np.maximum(people * np.where(is_yes, self.means, 1 - self.means), 0.0))

    @property
    def n_effective_rewards(self) -> Array:
        """Shape (J, K): how many equal rewards would bear a mean as uncertain as that of the arm with fewer of them.

        Of rewards x above the nearer bound that is (sum x)^2 / sum x^2, as of weighted rows (Kish 1965); 0 without any.
        """
        distances = np.minimum(self.middle, 1 - self.middle)
        squares = np.square(distances) + self.spread_of_hits
        has_hits = (squares > 0)[..., None] & (self.square > 0)
        people = np.square(self.den) / np.where(has_hits, self.square, 1.0)
        share = np.square(distances) / np.where(squares > 0, squares, 1.0)
        return np.asarray(np.where(has_hits, people * share[..., None], 0.0).min(axis=-1))

    def _has_rare_outcomes(self, min_rare: Array | float) -> Bools:
        """Shape (J, K): whether both arms have enough of the rarer outcome, or of the effective rewards."""
        rare = np.minimum(self.middle, 1 - self.middle)[..., None]
        required = np.asarray(min_rare)[..., None] * self.square
        if self.values is None:
            has_enough = np.square(self.den) * rare >= required
        else:
            has_enough = np.square(self.den * rare) >= required * self.spread_of_hits[..., None]
        return np.asarray(has_enough.all(axis=-1))

    @property
    def is_unresolved(self) -> Bools:
        """Shape (J, K): whether the variance of rewards is too small for their bounds to be measured.

        By no more than rounding does; or noise may be all that they vary by, and more than their mean allows.
        """
        if self.values is None:
            return np.zeros(self.people.shape, bool)
        may_be_noise = self.is_variance_within_noise & ~self._has_rare_outcomes(_MIN_RARE_OUTCOMES_WITH_NOISE)
        return np.asarray((self.spread_of_hits <= self.values.resolution) | may_be_noise)

    @cached_property
    def is_variance_within_noise(self) -> Bools:
        """Shape (J, K): whether the measured variance of rewards is so small that it may be noise alone."""
        if self.values is None:
            return np.zeros(self.people.shape, bool)
        variance, noise = self.values.measure_variance(self.num, self.den)
        return np.asarray((noise > 0) & (variance <= _HIDDEN_VARIANCE_DEVIATIONS * noise))

    @property
    def pooled(self) -> "Sums":
        """The sums of all segments, as one; shape (1, K)."""
        return self.map_arrays(lambda array: array.sum(axis=0, keepdims=True))

    def map_arrays(self, change: Callable[[Array], Array]) -> "Sums":
        """Return the sums with a function applied to each array."""
        values = self.values and self.values.map_arrays(change)
        arrays = {field.name: change(getattr(self, field.name)) for field in fields(self) if field.name != "values"}
        return Sums(**arrays, values=values)


def rates(sums: Sums) -> tuple[Array, Array, Array, Array]:
    """Return hits per person v, the means of q and o, and the effective sample size of v, each of shape (J, K)."""
    n = sums.people
    return sums.hits / n, sums.keep / n, sums.other / n, np.square(n) / sums.spread


def scaled_variance(variance: Array, factor: Array) -> Array:
    """Return the variance of a product with a factor, (J, K); infinite if the variance is."""
    is_finite = np.isfinite(variance)
    return np.where(is_finite, np.square(factor) * np.where(is_finite, variance, 0.0), np.inf)


def align_ends(estimate: Array, sides: tuple[Array, Array], score: Array, critical: float) -> tuple[Array, Array]:
    """Return the variances of both ends, such that the interval excludes 0 exactly if the score is critical."""
    boundary_variance = np.square(np.nan_to_num(estimate) / critical)
    is_decided, is_above = np.abs(np.nan_to_num(score)) > critical, np.nan_to_num(estimate) > 0
    min_variance = np.where(is_decided, 0.0, boundary_variance)
    max_variance = np.where(is_decided, boundary_variance * _STRICT_FACTOR, np.inf)
    low, high = (np.clip(side, min_variance, max_variance) for side in sides)
    return np.where(is_above, low, sides[0]), np.where(is_above, sides[1], high)


def standardized_scores(sums: Sums) -> Array:
    """Return differences over standard errors, shape (J, K), as normal quantiles; nan where not ready.

    Of numbers by both variances, the arms' own and that of both together: the score is the one nearer to 0. An arm's
    own goes with its luck, and that of both together says too much where the arm with fewer people varies more.
    """
    is_usable = sums.is_ready & (sums.variance > 0)
    score = np.where(is_usable, sums.difference / np.sqrt(np.where(is_usable, sums.variance, 1.0)), np.nan)
    if sums.values is None:
        return score
    own_variances = np.where(is_usable, sums.own_variances.sum(axis=-1), 1.0)
    t_statistics = np.abs(sums.difference) / np.sqrt(np.where(own_variances > 0, own_variances, np.inf))
    welch_scores = -ndtri(stdtr(sums.degrees_of_freedom, -t_statistics))
    return np.where(is_usable, np.sign(score) * np.minimum(np.abs(score), welch_scores), np.nan)
