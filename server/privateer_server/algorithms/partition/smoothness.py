"""How mean rewards vary over the space: a Gaussian process that is seen through its averages over bins."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTHS: Final = np.array([0.08, 0.12, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, 10.0])
"""Distances over which mean rewards may change along a feature, in widths of the space."""
SPREADS: Final = np.array([0.33, 0.5, 0.75, 1.0])
"""Standard deviations that the variation over the space may have, for values in [-1, 1]."""
_LEVEL: Final = 0.5
"""Standard deviation of an arm's level, common to the whole space."""
_NUGGET: Final = 1e-6
_NARROW: Final = 1e-3
"""Bins this narrow, in lengths, count as points."""


@dataclass(frozen=True)
class Smoothness:
    """A level plus a process whose covariance is a product of Matern-3/2 covariances of the features.

    A feature that matters little has a long length: bins that differ in it alone then share what they know.

    Attributes
    ----------
    lengths
        Shape (d,), int64: places in `LENGTHS`, one a feature.
    spread
        Place in `SPREADS`.
    """

    lengths: NDArray[np.int64]
    spread: int

    @property
    def _rates(self) -> Array:
        return np.asarray(np.sqrt(3.0) / LENGTHS[self.lengths])

    @property
    def _variance(self) -> float:
        return float(SPREADS[self.spread] ** 2)

    def covariance(self, lower: Array, upper: Array) -> Array:
        """Return the covariance of averages over bins by their corners, (bins, d) each; shape (bins, bins)."""
        product = np.ones((len(lower), len(lower)))
        for j, rate in enumerate(self._rates):
            # Bins share their edges along a feature: few intervals are distinct.
            edges, which = np.unique(np.stack([lower[:, j], upper[:, j]]), axis=1, return_inverse=True)
            which = which.reshape(-1)
            product *= overlap(edges[0], edges[1], float(rate))[np.ix_(which, which)]
        return np.asarray(_LEVEL**2 + self._variance * product + _NUGGET * np.eye(len(lower)))

    def within(self, lower: Array, upper: Array) -> Array:
        """Variance of the value at a random place of a bin around the bin's average, shape (bins,)."""
        alone = np.prod([_alone(width, rate) for width, rate in zip((upper - lower).T, self._rates, strict=True)], 0)
        return np.asarray(self._variance * np.maximum(0.0, 1 - alone))

    def halves(self, lower: Array, upper: Array) -> Array:
        """Variance of half the difference between a bin's halves along each feature, shape (bins, d)."""
        widths, rates = upper - lower, self._rates
        alone = np.stack([_alone(width, rate) for width, rate in zip(widths.T, rates, strict=True)], axis=1)
        half = np.stack([_alone(width / 2, rate) for width, rate in zip(widths.T, rates, strict=True)], axis=1)
        others = np.prod(alone, axis=1, keepdims=True) / alone
        # A bin's average has the variance of the mean of its halves': alone = (half + across) / 2.
        return np.asarray(self._variance * others * np.maximum(0.0, half - alone))


def overlap(lower: Array, upper: Array, rate: float) -> Array:
    """Average of (1 + rate t) exp(-rate t), t = |x - y|, over x and y in two intervals each, shape (n, n)."""
    a, b, c, d = lower[:, None], upper[:, None], lower[None, :], upper[None, :]
    double = _twice(b - c, rate) - _twice(a - c, rate) - _twice(b - d, rate) + _twice(a - d, rate)
    exact = double / ((b - a) * (d - c))
    middle = rate * np.abs(a + b - c - d) / 2
    narrow = rate * np.maximum(b - a, d - c) < _NARROW
    return np.asarray(np.clip(np.where(narrow, (1 + middle) * np.exp(-middle), exact), 0.0, 1.0))


def _alone(width: Array, rate: float) -> Array:
    """`overlap` of an interval with itself."""
    return np.asarray(2 * _twice(width, rate) / width**2)


def _twice(t: Array, rate: float) -> Array:
    """Second antiderivative of the Matern-3/2 covariance, even and 0 at 0."""
    x = rate * np.abs(t)
    small = x**2 * (1 / 2 - x**2 / 24 + x**3 / 60)
    return np.asarray(np.where(x < 1e-2, small, 2 * x + (x + 3) * np.exp(-x) - 3) / rate**2)
