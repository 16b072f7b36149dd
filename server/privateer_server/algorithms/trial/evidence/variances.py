"""Variances of the difference of two arms: of rates by the score test, and of numeric rewards by weighted sums."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from scipy.optimize.elementwise import find_root
from scipy.special import betaincinv

from privateer_core.arrays import Array
from privateer_core.primitives.contributions import ValueParts

_MAX_VARIANCE: Final = 0.25  # the largest variance of yes and no
_MIN_RATE_VARIANCE: Final = 1e-11


def restricted_rates(rates: Array, people: Array, difference: Array) -> Array:
    """Return the maximum likelihood rates with a given difference (Miettinen and Nurminen 1985, appendix).

    rates, people (..., 2): observed rates in [0, 1] of a treatment and its control, and of how many people, above 0.
    difference (...): the treatment's rate less that of the control, in [-1, 1].
    """
    treated, control, d = rates[..., 0], rates[..., 1], difference
    people_ratio = people[..., 1] / people[..., 0]
    total = treated + people_ratio * control
    cubic = 1 + people_ratio
    square = -(cubic + total + d * (people_ratio + 2))
    linear = d * d + d * (2 * treated + people_ratio + 1) + total
    centre = -square / (3 * cubic)
    offset = -(centre**3) - square * linear / (6 * cubic**2) - treated * d * (1 + d) / (2 * cubic)
    amplitude = np.sqrt(np.maximum(centre**2 - linear / (3 * cubic), 0.0)) * np.where(offset < 0, -1.0, 1.0)
    cosine = np.clip(offset / np.where(amplitude == 0, 1.0, amplitude**3), -1.0, 1.0)
    rate = centre + 2 * amplitude * np.cos((np.pi + np.arccos(cosine)) / 3)
    rate = np.clip(rate, np.maximum(d, 0.0), np.minimum(1.0, 1 + d))
    return np.stack([rate, rate - d], axis=-1)


def common_rate(rates: Array, people: Array, noise: Array) -> Array:
    """Return the maximum likelihood rate if both arms have the same, (...). Parameters are those of `variance_at`."""
    observed, weights = np.clip(rates, 0.0, 1.0), _effective_people(rates, people, noise)
    return np.asarray((weights * observed).sum(axis=-1) / weights.sum(axis=-1))


def variance_at(rates: Array, people: Array, noise: Array, difference: Array) -> Array:
    """Return the variance of the difference of two observed rates, (...), if the true ones differ by ``difference``.

    rates, people (..., 2): observed rates, which noise may put outside [0, 1], and how many people each is a mean of.
    noise (..., 2): variance that a release added to positive and to negative answers each, over squared people.
    difference (...): beyond [-1, 1] counts as these.
    """
    observed, weights = np.clip(rates, 0.0, 1.0), _effective_people(rates, people, noise)
    likely = restricted_rates(observed, weights, np.clip(difference, -1.0, 1.0))
    added = noise * (np.square(likely) + np.square(1 - likely))
    return np.asarray((likely * (1 - likely) / people + added).sum(axis=-1))


def _effective_people(rates: Array, people: Array, noise: Array) -> Array:
    """Return the number of participants without noise of equal information on each rate, up to a factor."""
    observed = np.clip(rates, 0.0, 1.0)
    pooled = (people * observed).sum(axis=-1, keepdims=True) / people.sum(axis=-1, keepdims=True)
    max_variance = np.maximum(pooled * (1 - pooled), _MIN_RATE_VARIANCE)
    return np.asarray(people / (1 + people * noise / max_variance))


def score_limits(rates: Array, people: Array, noise: Array, critical: float) -> tuple[Array, Array]:
    """Return both confidence limits of the difference by inversion of the score test, (...) each.

    They leave 0 out exactly where the test of no difference is decided: both take the variance that goes with the
    difference they are about. Parameters are those of `variance_at`.
    """
    # The lower end is the upper one of the control less the treatment.
    rates, people, noise = (np.stack([array[..., ::-1], array]) for array in (rates, people, noise))
    middle = np.asarray(rates[..., 0] - rates[..., 1])

    def beyond(end: Array, middle: Array, *sides: Array) -> Array:
        rates, people, noise = (np.stack(sides[index : index + 2], axis=-1) for index in (0, 2, 4))
        return np.asarray(end - middle - critical * np.sqrt(variance_at(rates, people, noise, end)))

    upper_bracket = middle + critical * np.sqrt((_MAX_VARIANCE / people + noise).sum(axis=-1))
    sides = [array[..., arm] for array in (rates, people, noise) for arm in (0, 1)]
    # Where both rates are at a bound, their difference is as likely as can be: what is beyond it has a variance.
    roots = find_root(beyond, (middle + _MIN_RATE_VARIANCE, upper_bracket), args=(middle, *sides))
    ends = np.where(roots.success, roots.x, middle)
    return -ends[0], ends[1]


_N_QUANTILES: Final = 400
_MAX_VARIANCE_RATIO: Final = 0.99  # a beta distribution varies by less than bits of its mean


@dataclass(frozen=True)
class ValueSums:
    """Weighted sums over epochs, of each contrast and its two arms; named as in `Sums`."""

    squares: Array  # shape (J, K, 2): sum of w times the squares of values
    # shape (J, K, 2, 3, 3): sum of w^2 times the covariance of what releases added to sums of values, hits, squares
    noise: Array
    resolution: float = 0.0  # variance of values that is no larger may be that of rounding alone

    @classmethod
    def empty(cls, contrasts: tuple[int, int]) -> Self:
        """Return the sums of no releases."""
        return cls(np.zeros((*contrasts, 2)), np.zeros((*contrasts, 2, 3, 3)))

    def add(self, weights: Array, squares: Array, noise: float, parts: ValueParts, resolution: float) -> "ValueSums":
        """Return the sums with an epoch of weights w and sums of squares (J, K, 2); ``noise`` is that of each part."""
        covariance = (np.square(weights) * noise)[..., None, None] * parts.gram
        return ValueSums(self.squares + weights * squares, self.noise + covariance, max(self.resolution, resolution))

    def map_arrays(self, change: Callable[[Array], Array]) -> "ValueSums":
        """Return the sums with a function applied to each array."""
        return replace(self, squares=change(self.squares), noise=change(self.noise))

    def noise_variance(self, *coefficients: Any) -> Array:
        """Return the variance of noise in a combination of the sums of values, hits and squares, (J, K, 2)."""
        vector = np.stack(np.broadcast_arrays(*coefficients), axis=-1)
        return np.asarray(np.einsum("...i,...ij,...j->...", vector, self.noise, vector))

    def measure_variance(self, values: Array, hits: Array) -> tuple[Array, Array]:
        """Return the variance of a value, pooled over arms, and the standard deviation of its noise, (J, K) each.

        With mid the mean of both arms' means: no values in [0, 1] vary by more than mid (1 - mid) (Bhatia and Davis
        2000). An arm's own variance would go with its luck: where few people get an arm, 0 is found too often
        (docs/rewards-measured.md).

        values, hits (J, K, 2): the sums of w times values, and of w times hits.
        """
        has_hits = hits > 0
        scale = 1 / np.where(has_hits, hits, np.inf)
        means = values * scale
        mid = np.clip(means.mean(axis=-1), 0.0, 1.0)
        variance = np.clip((self.squares * scale - np.square(means)).mean(axis=-1), 0.0, mid * (1 - mid))
        noise = self.noise_variance(-2 * mid[..., None], (np.square(mid) - variance)[..., None], 1.0) * np.square(scale)
        return variance, np.sqrt(noise.mean(axis=-1) / 2)

    def variance(self, values: Array, hits: Array) -> Array:
        """Return the variance of a value for intervals, (J, K): one standard deviation of its noise upwards.

        Parameters are those of `measure_variance`.
        """
        variance, noise = self.measure_variance(values, hits)
        middle = np.clip((values / np.where(hits > 0, hits, np.inf)).mean(axis=-1), 0.0, 1.0)
        return np.asarray(np.minimum(middle * (1 - middle), variance + noise))

    def variances_of_arms(self, values: Array, hits: Array, people: Array) -> Array:
        """Return the variance of a value in each arm, (J, K, 2): one standard deviation of its noise upwards.

        values, hits: as in `measure_variance`.
        people (J, K, 2): how many people each arm's mean is of.
        """
        inverse_hits = 1 / np.where(hits > 0, hits, np.inf)
        means = np.clip(values * inverse_hits, 0.0, 1.0)
        max_variances = means * (1 - means)
        variances = np.clip(self.squares * inverse_hits - np.square(values * inverse_hits), 0.0, max_variances)
        noise = np.sqrt(self.noise_variance(-2 * means, np.square(means) - variances, 1.0)) * inverse_hits
        return np.asarray(np.minimum(max_variances, variances + noise) * people / np.maximum(people - 1, 1.0))


@dataclass(frozen=True)
class PlannedValues:
    """The planned distribution of numeric rewards in reports."""

    spread: float  # variance of what a person's own hits count, rounding included
    parts: ValueParts  # what is counted of a value

    @classmethod
    def from_moments(cls, mean: float, deviation: float, parts: ValueParts, *, rounded: bool) -> Self:
        """Return the plan for rewards of this mean and standard deviation.

        Rounding to a neighbour adds d (step - d), with d above the level below; here where numbers have the beta
        distribution of this mean and deviation.
        """
        variance = min(deviation**2, _MAX_VARIANCE_RATIO * mean * (1 - mean))
        if not rounded:
            return cls(variance, parts)
        step, shape = 1 / (parts.count - 1), mean * (1 - mean) / variance - 1
        rests = betaincinv(shape * mean, shape * (1 - mean), (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES) % step
        return cls(variance + float((rests * (step - rests)).mean()), parts)

    def hit_variance(self, own_hits: Array, hit: Array, rate: Array) -> Array:
        """Return the variance of a hit's value, (J, 1), if ``own_hits`` of ``hit`` per person are the segment's own.

        With th = 1/2 + own (2 f - 1)/(2 hit) its mean, f the mean reward ``rate``, and m what others' hits count in
        squares: (own (spread + f^2) + (hit - own) m)/hit - th^2.
        """
        mean = 0.5 + own_hits * (2 * rate - 1) / (2 * hit)
        squares = own_hits * (self.spread + np.square(rate)) + (hit - own_hits) * self.parts.average_square
        return np.asarray(squares / hit - np.square(mean))

    def measurement_bias(self, noise: Array, hits: Array, rate: Array) -> Array:
        """Return the bias that noise of each part adds to a measured variance, as `ValueSums.variance`.

        hits: hits of both arms on the last axis.
        """
        values, _, squares = self.parts.moments
        coefficients = squares - 2 * rate[..., None] * values + np.square(rate)[..., None] - self.spread
        deviation = np.sqrt(noise * np.square(coefficients).sum(axis=-1) * np.square(1 / hits).mean(axis=-1) / 2)
        return np.asarray(np.minimum(deviation, np.maximum(rate * (1 - rate) - self.spread, 0.0)))
