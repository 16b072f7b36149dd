"""Estimates of weighted means of rewards, with intervals that hold where few rewards decide."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from privateer_lab.clusters import error_of_mean

Array = NDArray[np.float64]
_MIN_EFFECTIVE: Final = 50.0
"""Unusual rewards of equal weight from which on an interval is a normal one; their sum has a skewness of 1/7."""
_MIN_EFFECTIVE_RATIO: Final = 20.0
"""Rewards of equal weight from which on that of their mean is one, if no reward is usual."""
_BEARING: Final = 0.25
"""Share of people or clusters that bear so many rewards as few as there are, at most."""


@dataclass(frozen=True)
class Value:
    """An estimate with its interval.

    Attributes
    ----------
    name
        What is estimated, or how.
    value, error
        The estimate and its standard error, in the units of rewards. Of an exact interval the error is its width over
        that of a normal one with an error of 1.
    low, high
        The ends of the interval, within the range of rewards; NaN if nothing is known of that range.
    is_exact
        Whether few rewards decide, so that the interval is one of exact limits.
    """

    name: str
    value: float
    error: float
    low: float
    high: float
    is_exact: bool


@dataclass(frozen=True)
class RewardSample:
    """Rewards of which means are estimated.

    Attributes
    ----------
    rewards
        Shape (n,).
    units
        Shape (n,): whose each row is, as the places of people or clusters; rows of different ones are independent.
    given_range
        The least and the largest reward that is possible; None: 0 and 1 or, if some are beyond, those of the rows.
    level
        The probability with which each interval holds.
    """

    rewards: Array
    units: NDArray[np.int64]
    given_range: tuple[float, float] | None
    level: float

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the largest reward that is possible."""
        low, high = float(self.rewards.min()), float(self.rewards.max())
        return self.given_range or ((0.0, 1.0) if 0 <= low <= high <= 1 else (low, high))

    @property
    def quantile(self) -> float:
        """The half width of a normal interval with an error of 1."""
        return float(stdtrit(max(1, self.units.max()), (1 + self.level) / 2))

    def mean(
        self, name: str, weights: Array, rest: Array | float = 0.0, *, is_ratio: bool = False, is_gain: bool = False
    ) -> Value:
        """Return the mean of weights, (n,), times rewards, plus the rest, (n,), which knows no reward of its row.

        An interval is normal where so many rewards differ from the most frequent one that their sum is. Otherwise it
        has exact limits of a weighted count of them: Clopper and Pearson's if weights are equal, else those of Fay and
        Feuer (1997), who add the largest weight for a reward that nobody has seen. Sums of rewards above and below the
        most frequent one and the rest are combined as by Zou and Donner (2008), "MOVER".

        Parameters
        ----------
        is_ratio
            Weights are shares of their own sum, and the interval is that of rewards alone.
        is_gain
            The mean is a difference of two means of rewards.
        """
        value = float(np.mean(weights * self.rewards + rest))
        usual = _most_frequent(self.rewards, np.abs(weights))
        rare, jumps = weights * (self.rewards - usual), self._jumps(weights, usual)
        nothing = self.unknown(name, is_gain=is_gain)
        if not self.range[0] < self.range[1]:
            return replace(nothing, value=value)
        if is_ratio and np.abs(weights[self.rewards == usual]).sum() < np.abs(weights).sum() / 2:
            is_exact = self._are_few(weights * (self.rewards - value), 0.0, _MIN_EFFECTIVE_RATIO)
        else:
            jump = float(np.abs(weights).max()) * max(self.range[1] - usual, usual - self.range[0])
            is_exact = self._are_few(rare, jump, _MIN_EFFECTIVE)
        if is_exact:
            cap = self.range[1] - self.range[0] if is_ratio else None
            ends = [self._distances(self._by_unit(rare), jumps, cap)]
            if not is_ratio:
                ends += [self._distances_of_rest(weights * usual), (self.quantile * self.error_of(rest),) * 2]
            down, up = np.sqrt(np.square(ends).sum(axis=0)).tolist()
            error = (down + up) / 2 / self.quantile
        else:
            error = self.error_of(weights * (self.rewards - value) if is_ratio else weights * self.rewards + rest)
            down = up = self.quantile * error
        return Value(name, value, error, max(nothing.low, value - down), min(nothing.high, value + up), is_exact)

    def unknown(self, name: str, *, is_gain: bool = False) -> Value:
        """Return a mean, or a difference of two, of which nothing is known but the range of rewards, if that is."""
        (low, high), nan = self.range, float("nan")
        low, high = (low - high, high - low) if is_gain else (low, high)
        return Value(name, nan, nan, low, high, True) if low < high else Value(name, nan, nan, nan, nan, True)

    def error_of(self, parts: Array | float) -> float:
        """Return the standard error of a mean of parts, (n,), whose sums by unit are independent."""
        return error_of_mean(np.broadcast_to(parts, self.units.shape), self.units)

    def _are_few(self, parts: Array, jump: float, least: float) -> bool:
        """Whether few rows, (n,) with one more that jumps, or few units make a sum, so that it is not normal."""
        if _effective(parts, jump) < least:
            return True
        sums = np.append(np.abs(self._by_unit(parts)), jump)
        return bool(sums.sum() ** 2 < min(least, _BEARING * len(sums)) * np.square(sums).sum())  # Kish 1965

    def _by_unit(self, parts: Array) -> Array:
        return np.bincount(self.units, parts).astype(np.float64)

    def _jumps(self, weights: Array, usual: float) -> tuple[float, float]:
        """Return how far rewards that nobody has seen, of one unit, may move the sum: up, and down."""
        (largest, least), (low, high) = self._largest(weights), self.range
        above, below = high - usual, usual - low
        return max(largest * above, least * below), max(largest * below, least * above)

    def _largest(self, parts: Array) -> tuple[float, float]:
        """Return the largest sums of positive parts, (n,), and of negative ones that a unit has."""
        up, down = (float(self._by_unit(np.maximum(side, 0)).max()) for side in (parts, -parts))
        return up, down

    def _distances_of_rest(self, parts: Array) -> tuple[float, float]:
        """Return how far below and above a mean of weights times one reward the truth may be."""
        differences = parts - _most_frequent(parts, np.ones(len(parts)))
        jumps, sums = self._largest(differences), self._by_unit(differences)
        if _effective(sums, max(jumps)) < _MIN_EFFECTIVE:
            return self._distances(sums, jumps, None)
        return (self.quantile * self.error_of(parts),) * 2

    def _distances(self, sums: Array, jumps: tuple[float, float], cap: float | None) -> tuple[float, float]:
        """Return how far below and above the mean of sums by unit the truth may be."""
        n_rows = len(self.units)
        (up_low, up_high), (down_low, down_high) = (
            _limits(part[part > 0] / n_rows, jump / n_rows, len(sums), cap, self.level)
            for part, jump in zip((sums, -sums), jumps, strict=True)
        )
        return float(np.hypot(up_low, down_high)), float(np.hypot(up_high, down_low))


def _most_frequent(values: Array, weights: Array) -> float:
    """Return the value, (n,), with the most weight, (n,)."""
    distinct, places = np.unique(values, return_inverse=True)
    return float(distinct[np.bincount(places, weights).argmax()])


def _effective(sums: Array, jump: float) -> float:
    """Return how many equal summands have a sum as skewed as these and one more, of the largest size."""
    sizes = np.append(np.abs(sums), jump)
    cubes = float(np.square((sizes**3).sum()))
    return float(np.square(sizes).sum()) ** 3 / cubes if cubes else 0.0


def _limits(sizes: Array, jump: float, n_units: int, cap: float | None, level: float) -> tuple[float, float]:
    """Return how far below and above the sum of sizes, (k,), the expectation of such a sum may be.

    Parameters
    ----------
    jump
        The largest size.
    n_units
        How many units may each have added such a size, if there is no ``cap``, which is the largest sum.
    """
    total, squares, tail = float(sizes.sum()), float(np.square(sizes).sum()), (1 - level) / 2
    ends = []
    for mean, variance, quantile in ((total, squares, tail), (total + jump, squares + jump**2, 1 - tail)):
        if not mean:
            ends.append(0.0)
            continue
        size = variance / mean
        n_trials, count = cap / size if cap else float(n_units), mean / size
        share = betaincinv(count, n_trials - count + 1, quantile) if count < n_trials + 1 else 1.0
        ends.append(float(size * n_trials * share))
    return total - min(total, ends[0]), max(total, ends[1]) - total
