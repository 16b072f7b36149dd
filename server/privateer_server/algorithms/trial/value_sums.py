"""Weighted sums about rewards that are numbers: from them their variance, and what noise adds to a mean."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import ValueParts

Array = NDArray[np.float64]

_MEANS: Final = 20.0
"""Squared means over squared standard deviations, times people, that both arms need before the normal approximation is
used: of rare rewards that is 20 of them."""
_PEOPLE: Final = 100.0
"""People of both arms that it needs besides."""


@dataclass(frozen=True)
class ValueSums:
    """Weighted sums over epochs, of each contrast and its two arms; named as in `Sums`.

    Attributes
    ----------
    squares
        Shape (J, K, 2): sum of w times the squares of values.
    noise
        Shape (J, K, 2, 3, 3): sum of w^2 times the covariance of what releases added to sums of values, hits, squares.
    """

    squares: Array
    noise: Array

    @classmethod
    def none(cls, contrasts: tuple[int, int]) -> Self:
        """Return sums of nothing."""
        return cls(np.zeros((*contrasts, 2)), np.zeros((*contrasts, 2, 3, 3)))

    def add(self, weights: Array, squares: Array, noise: float, parts: ValueParts) -> "ValueSums":
        """Add an epoch with weights w and sums of squares (J, K, 2), of parts that vary by ``noise`` each."""
        varied = (np.square(weights) * noise)[..., None, None] * parts.gram
        return ValueSums(self.squares + weights * squares, self.noise + varied)

    def varied(self, *coefficients: Any) -> Array:
        """Return the variance of noise in a combination of the sums of values, hits and squares, (J, K, 2)."""
        taken = np.stack(np.broadcast_arrays(*coefficients), axis=-1)
        return np.asarray(np.einsum("...i,...ij,...j->...", taken, self.noise, taken))

    def variance(self, values: Array, hits: Array) -> Array:
        """Return the variance of a value, (J, K): that of both arms together, one standard deviation of noise upwards.

        Parameters
        ----------
        values, hits
            Shape (J, K, 2): the sums of w times values, and of w times hits.

        Notes
        -----
        With mid the mean of both arms' means: no values in [0, 1] vary by more than mid (1 - mid) (Bhatia and Davis
        2000). An arm's own variance would go with its luck: where few people get an arm, 0 is found too often
        (docs/rewards.md).
        """
        some = hits > 0
        per = 1 / np.where(some, hits, np.inf)
        means = values * per
        mid = np.clip(means.mean(axis=-1), 0.0, 1.0)
        found = np.maximum((self.squares * per - np.square(means)).mean(axis=-1), 0.0)
        noise = self.varied(-2 * mid[..., None], (np.square(mid) - found)[..., None], 1.0) * np.square(per)
        return np.asarray(np.minimum(mid * (1 - mid), found + np.sqrt(noise.mean(axis=-1) / 2)))


def enough_values(people: Array, middle: Array, variance: Array) -> NDArray[np.bool_]:
    """Return whether so many people, (J, K, 2), are enough for values of this mean and variance, (J, K) each."""
    rare = np.square(np.minimum(middle, 1 - middle))
    seen = people * rare[..., None] >= _MEANS * variance[..., None]
    return np.asarray(seen & (people >= _PEOPLE))
