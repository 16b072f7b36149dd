"""Rewards that are numbers: weighted sums that tell their variance, and what is planned of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from privateer_core.primitives.contributions import ValueParts

Array = NDArray[np.float64]

_POINTS: Final = 400
_WIDEST: Final = 0.99
"""A beta distribution varies by less than bits of its mean."""


@dataclass(frozen=True)
class ValueSums:
    """Weighted sums over epochs, of each contrast and its two arms; named as in `Sums`."""

    squares: Array  # shape (J, K, 2): sum of w times the squares of values
    # shape (J, K, 2, 3, 3): sum of w^2 times the covariance of what releases added to sums of values, hits, squares
    noise: Array
    resolution: float = 0.0  # variance of values that is no larger may be that of rounding alone

    @classmethod
    def none(cls, contrasts: tuple[int, int]) -> Self:
        """Return sums of nothing."""
        return cls(np.zeros((*contrasts, 2)), np.zeros((*contrasts, 2, 3, 3)))

    def add(self, weights: Array, squares: Array, noise: float, parts: ValueParts, resolution: float) -> "ValueSums":
        """Add an epoch with weights w and sums of squares (J, K, 2), of parts that vary by ``noise`` each."""
        varied = (np.square(weights) * noise)[..., None, None] * parts.gram
        return ValueSums(self.squares + weights * squares, self.noise + varied, max(self.resolution, resolution))

    def changed(self, change: Callable[[Array], Array]) -> "ValueSums":
        """Return the sums with each array changed, in the same way."""
        return replace(self, squares=change(self.squares), noise=change(self.noise))

    def varied(self, *coefficients: Any) -> Array:
        """Return the variance of noise in a combination of the sums of values, hits and squares, (J, K, 2)."""
        taken = np.stack(np.broadcast_arrays(*coefficients), axis=-1)
        return np.asarray(np.einsum("...i,...ij,...j->...", taken, self.noise, taken))

    def measured(self, values: Array, hits: Array) -> tuple[Array, Array]:
        """Return the variance of a value, of both arms together, and the standard deviation of its noise, (J, K) each.

        With mid the mean of both arms' means: no values in [0, 1] vary by more than mid (1 - mid) (Bhatia and Davis
        2000). An arm's own variance would go with its luck: where few people get an arm, 0 is found too often
        (docs/rewards-measured.md).

        values, hits (J, K, 2): the sums of w times values, and of w times hits.
        """
        some = hits > 0
        per = 1 / np.where(some, hits, np.inf)
        means = values * per
        mid = np.clip(means.mean(axis=-1), 0.0, 1.0)
        found = np.clip((self.squares * per - np.square(means)).mean(axis=-1), 0.0, mid * (1 - mid))
        noise = self.varied(-2 * mid[..., None], (np.square(mid) - found)[..., None], 1.0) * np.square(per)
        return found, np.sqrt(noise.mean(axis=-1) / 2)

    def variance(self, values: Array, hits: Array) -> Array:
        """Return the variance of a value as it is used, (J, K): one standard deviation of its noise upwards.

        Parameters are those of `measured`.
        """
        found, noise = self.measured(values, hits)
        mid = np.clip((values / np.where(hits > 0, hits, np.inf)).mean(axis=-1), 0.0, 1.0)
        return np.asarray(np.minimum(mid * (1 - mid), found + noise))

    def variances_of_arms(self, values: Array, hits: Array, people: Array) -> Array:
        """Return the variance of a value in each arm, (J, K, 2): one standard deviation of its noise upwards.

        values, hits: as in `measured`.
        people (J, K, 2): how many people each arm's mean is of.
        """
        per = 1 / np.where(hits > 0, hits, np.inf)
        means = np.clip(values * per, 0.0, 1.0)
        most = means * (1 - means)
        found = np.clip(self.squares * per - np.square(values * per), 0.0, most)
        noise = np.sqrt(self.varied(-2 * means, np.square(means) - found, 1.0)) * per
        return np.asarray(np.minimum(most, found + noise) * people / np.maximum(people - 1, 1.0))


@dataclass(frozen=True)
class PlannedValues:
    """How reports to come tell rewards that are numbers."""

    spread: float  # variance of what a person's own hits count, rounding included
    parts: ValueParts  # what is counted of a value

    @classmethod
    def of(cls, mean: float, deviation: float, parts: ValueParts, *, rounded: bool) -> Self:
        """Return what is planned of rewards of this mean and standard deviation; bounds hold rewards.

        Rounding to a neighbour adds d (step - d), with d above the level below; here where numbers have the beta
        distribution of this mean and deviation.
        """
        spread = min(deviation**2, _WIDEST * mean * (1 - mean))
        if not rounded:
            return cls(spread, parts)
        step, more = 1 / (parts.count - 1), mean * (1 - mean) / spread - 1
        above = betaincinv(more * mean, more * (1 - mean), (np.arange(_POINTS) + 0.5) / _POINTS) % step
        return cls(spread + float((above * (step - above)).mean()), parts)

    def hit_variance(self, own: Array, hit: Array, rate: Array) -> Array:
        """Return the variance of what a hit counts, ``own`` of ``hit`` per person being a segment's people's, (J, 1).

        With th = 1/2 + own (2 f - 1)/(2 hit) its mean, f the mean reward ``rate``, and m what others' hits count in
        squares: (own (spread + f^2) + (hit - own) m)/hit - th^2.
        """
        mean = 0.5 + own * (2 * rate - 1) / (2 * hit)
        squares = own * (self.spread + np.square(rate)) + (hit - own) * self.parts.average_square
        return np.asarray(squares / hit - np.square(mean))

    def measured(self, noise: Array, hits: Array, rate: Array) -> Array:
        """Return what noise of each part adds to a measured variance: a standard deviation, as `ValueSums.variance`.

        hits: hits of both arms on the last axis.
        """
        values, _, squares = self.parts.moments
        off = squares - 2 * rate[..., None] * values + np.square(rate)[..., None] - self.spread
        deviation = np.sqrt(noise * np.square(off).sum(axis=-1) * np.square(1 / hits).mean(axis=-1) / 2)
        return np.asarray(np.minimum(deviation, np.maximum(rate * (1 - rate) - self.spread, 0.0)))
