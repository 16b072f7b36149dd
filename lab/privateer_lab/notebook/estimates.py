"""Estimates of weighted means of rewards, with confidence intervals that are valid for rare rewards, too."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from privateer_lab.analysis.clusters import cluster_standard_error

Array = NDArray[np.float64]
_MIN_EFFECTIVE_COUNT: Final = 50.0
"""Least number of equally weighted rewards off the mode for a normal interval: the skewness of their sum is 1/7."""
_MIN_EFFECTIVE_COUNT_OF_RATIO: Final = 20.0
"""The same for a ratio estimate (self-normalized weights) if no reward has most of the weight."""
_MAX_UNIT_SHARE: Final = 0.25
"""Largest share of the units (participants or clusters) that the effective number of units has to reach."""


@dataclass(frozen=True)
class Value:
    """An estimate with its confidence interval.

    Attributes
    ----------
    name
        The estimand or the estimator.
    value, error
        The estimate and its standard error, in the units of rewards. Of an exact interval the error is its width over
        the width of a normal interval with a standard error of 1.
    low, high
        The ends of the interval, within the range of rewards; NaN if that range is unknown.
    is_exact
        Whether the interval has exact limits, because few rewards decide.
    """

    name: str
    value: float
    error: float
    low: float
    high: float
    is_exact: bool


@dataclass(frozen=True)
class RewardSample:
    """Rewards for estimates of weighted means."""

    rewards: Array  # shape (n,)
    units: NDArray[np.int64]  # shape (n,): each row's participant or cluster; different units are independent
    # the least and the largest possible reward; None: 0 and 1 or, if rewards are beyond, those of the rows
    given_range: tuple[float, float] | None
    level: float  # the confidence level of each interval

    @cached_property
    def range(self) -> tuple[float, float]:
        """The least and the largest possible reward."""
        low, high = float(self.rewards.min()), float(self.rewards.max())
        return self.given_range or ((0.0, 1.0) if 0 <= low <= high <= 1 else (low, high))

    @property
    def t_quantile(self) -> float:
        """The quantile of Student's t distribution: the half width of an interval with a standard error of 1."""
        return float(stdtrit(max(1, self.units.max()), (1 + self.level) / 2))

    def estimate_mean(
        self, name: str, weights: Array, control: Array | float = 0.0, *, is_ratio: bool = False, is_gain: bool = False
    ) -> Value:
        """Estimate the mean of weights, (n,), times rewards, plus a control variate, (n,), free of its row's reward.

        The interval is normal if enough rewards differ from the mode (the most frequent reward). Otherwise it has
        exact limits of their weighted count: Clopper and Pearson's if weights are equal, else those of Fay and Feuer
        (1997), who add the largest weight for an unseen reward. Sums of rewards above and below the mode and the
        control variate are combined as by Zou and Donner (2008), "MOVER".

        is_ratio: weights are shares of their own sum, and the interval is that of rewards alone.
        is_gain: the mean is a difference of two means of rewards.
        """
        value = float(np.mean(weights * self.rewards + control))
        mode = _weighted_mode(self.rewards, np.abs(weights))
        deviations, unseen_sums = weights * (self.rewards - mode), self._largest_unseen_sums(weights, mode)
        unknown = self.unknown_mean(name, is_gain=is_gain)
        if not self.range[0] < self.range[1]:
            return replace(unknown, value=value)
        if is_ratio and np.abs(weights[self.rewards == mode]).sum() < np.abs(weights).sum() / 2:
            is_exact = self._has_few_effective(weights * (self.rewards - value), 0.0, _MIN_EFFECTIVE_COUNT_OF_RATIO)
        else:
            unseen_size = float(np.abs(weights).max()) * max(self.range[1] - mode, mode - self.range[0])
            is_exact = self._has_few_effective(deviations, unseen_size, _MIN_EFFECTIVE_COUNT)
        if is_exact:
            max_sum = self.range[1] - self.range[0] if is_ratio else None
            distances = [self._unit_limits(self._sum_by_unit(deviations), unseen_sums, max_sum)]
            if not is_ratio:
                control_half_width = self.t_quantile * self.standard_error(control)
                distances += [self._limit_distances(weights * mode), (control_half_width, control_half_width)]
            below, above = np.sqrt(np.square(distances).sum(axis=0)).tolist()
            error = (below + above) / 2 / self.t_quantile
        else:
            summands = weights * (self.rewards - value) if is_ratio else weights * self.rewards + control
            error = self.standard_error(summands)
            below = above = self.t_quantile * error
        return Value(name, value, error, max(unknown.low, value - below), min(unknown.high, value + above), is_exact)

    def unknown_mean(self, name: str, *, is_gain: bool = False) -> Value:
        """Return a mean, or a difference of two means, that has no estimate: its interval is the range of rewards."""
        (low, high), nan = self.range, float("nan")
        low, high = (low - high, high - low) if is_gain else (low, high)
        return Value(name, nan, nan, low, high, True) if low < high else Value(name, nan, nan, nan, nan, True)

    def standard_error(self, summands: Array | float) -> float:
        """Return the standard error of the mean of summands, (n,), whose sums by unit are independent."""
        return cluster_standard_error(np.broadcast_to(summands, self.units.shape), self.units)

    def _has_few_effective(self, summands: Array, unseen_size: float, min_count: float) -> bool:
        """Whether too few rows, (n,) and an unseen one, or too few units make a sum for it to be normal."""
        if _effective_count(summands, unseen_size) < min_count:
            return True
        sums = np.append(np.abs(self._sum_by_unit(summands)), unseen_size)
        return bool(sums.sum() ** 2 < min(min_count, _MAX_UNIT_SHARE * len(sums)) * np.square(sums).sum())  # Kish 1965

    def _sum_by_unit(self, summands: Array) -> Array:
        return np.bincount(self.units, summands).astype(np.float64)

    def _largest_unseen_sums(self, weights: Array, mode: float) -> tuple[float, float]:
        """Return the largest amounts by which the unseen rewards of one unit may raise and lower the sum."""
        (positive_sum, negative_sum), (low, high) = self._largest_unit_sums(weights), self.range
        above, below = high - mode, mode - low
        return max(positive_sum * above, negative_sum * below), max(positive_sum * below, negative_sum * above)

    def _largest_unit_sums(self, summands: Array) -> tuple[float, float]:
        """Return a unit's largest sums of the positive and of the negative summands, (n,)."""
        positive, negative = (float(self._sum_by_unit(np.maximum(signed, 0)).max()) for signed in (summands, -summands))
        return positive, negative

    def _limit_distances(self, summands: Array) -> tuple[float, float]:
        """Return the distances of the lower and the upper limit from the mean of summands, weights times one reward."""
        differences = summands - _weighted_mode(summands, np.ones(len(summands)))
        unseen_sums, sums = self._largest_unit_sums(differences), self._sum_by_unit(differences)
        if _effective_count(sums, max(unseen_sums)) < _MIN_EFFECTIVE_COUNT:
            return self._unit_limits(sums, unseen_sums, None)
        return (self.t_quantile * self.standard_error(summands),) * 2

    def _unit_limits(self, sums: Array, unseen_sums: tuple[float, float], max_sum: float | None) -> tuple[float, float]:
        """Return the distances of the lower and the upper exact limit from the mean of sums by unit."""
        n_rows = len(self.units)
        (up_low, up_high), (down_low, down_high) = (
            _exact_limits(sizes[sizes > 0] / n_rows, unseen_sum / n_rows, len(sums), max_sum, self.level)
            for sizes, unseen_sum in zip((sums, -sums), unseen_sums, strict=True)
        )
        return float(np.hypot(up_low, down_high)), float(np.hypot(up_high, down_low))


def _weighted_mode(values: Array, weights: Array) -> float:
    """Return the value, of (n,), with the largest total weight, (n,)."""
    distinct, indices = np.unique(values, return_inverse=True)
    return float(distinct[np.bincount(indices, weights).argmax()])


def _effective_count(sums: Array, unseen_size: float) -> float:
    """Return the number of equal summands with a sum as skewed as the sum of these and an unseen one."""
    sizes = np.append(np.abs(sums), unseen_size)
    cubes = float(np.square((sizes**3).sum()))
    return float(np.square(sizes).sum()) ** 3 / cubes if cubes else 0.0


def _exact_limits(sizes: Array, unseen: float, n_units: int, cap: float | None, level: float) -> tuple[float, float]:
    """Return the distances of the exact limits for the expected sum of sizes, (k,), below and above their sum.

    Each of ``n_units`` may add an ``unseen`` size, the largest, if there is no ``cap``, the largest possible sum.
    """
    total, squares, tail = float(sizes.sum()), float(np.square(sizes).sum()), (1 - level) / 2
    limits = []
    for mean, variance, quantile in ((total, squares, tail), (total + unseen, squares + unseen**2, 1 - tail)):
        if not mean:
            limits.append(0.0)
            continue
        size = variance / mean
        n_trials, count = cap / size if cap else float(n_units), mean / size
        share = betaincinv(count, n_trials - count + 1, quantile) if count < n_trials + 1 else 1.0
        limits.append(float(size * n_trials * share))
    return total - min(total, limits[0]), max(total, limits[1]) - total
