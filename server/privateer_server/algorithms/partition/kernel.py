"""The covariance of mean rewards over the space, and of their averages over bins."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.partition.bin_tree import BlockColumns, Space, level_membership

Factors = dict[tuple[int, int], Array]
"""Covariances along single blocks for given bins, by the places of block and length."""

LENGTHS: Final = np.array([0.08, 0.12, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.5, 5.0, 10.0])
"""Distances over which mean rewards may change along a feature, in widths of the space."""
SPREADS: Final = np.array([0.33, 0.5, 0.75, 1.0])
"""Standard deviations that the variation over the space may have, for values in [-1, 1]."""
_USUAL_LENGTH_INDEX: Final = 5
_USUAL_LENGTH_INDEX_OF_MANY: Final = 8
_MANY_BLOCKS: Final = 5
"""Places of usual lengths: .5; and 1.5 of more blocks than this, most of which then do not matter."""
_LEVEL_DEVIATION: Final = 0.5  # standard deviation of an arm's level, common to the whole space
_COMMON_LENGTH_INDEX: Final = 3  # place of the length along each feature, .25, of the part that arms have in common
_COMMON_BIN_DEVIATION: Final = 0.3  # standard deviation of what this part has in each bin alone
_END_MARGIN_SHARE: Final = 0.2
_N_STEPS: Final = 20  # steps from a scale to the level and back. What they move shrinks by more than half in each
_NUGGET: Final = 1e-6
_POINT_WIDTH: Final = 1e-3  # bins this narrow, in lengths, count as points


@dataclass(frozen=True)
class Hyperparameters:
    """The kernel in use, for the blocks of all features."""

    # lengths, spread: as in `Kernel`, for all blocks
    lengths: Ints
    spread: int
    fitted: int = 0  # people who had reported when these were fitted last
    common: bool = False  # as in `Kernel`


@dataclass(frozen=True)
class PriorScale:
    """The prior mean and scale of values: they are ``level + scale * u``, u the process of a `Kernel`.

    Rewards that nearly all people have, or hardly any, leave values little room: a change of the log odds by t moves a
    value v by (1 - v^2) t / 2, and so does the same t of the process move it by the scale 1 - v^2 at most.
    """

    level: float = 0.0  # the average of all that was observed of values, in [-1, 1]
    sure: float = 0.0  # how far it is from 0 at least, as far as is known, in [0, 1)

    @classmethod
    def from_declared(cls, mean: float, people: int) -> "PriorScale":
        """Return the scale from a declared mean value, before a first round of ``people`` participants.

        Nothing counts as rarer than one event in that round: a round must not count for much more than it tells.
        """
        max_level = max(0.0, 1 - 2 / people)
        level = float(np.clip(mean, -max_level, max_level))
        return cls(level, abs(level))

    @classmethod
    def from_observations(cls, precision: Array, moment: Array, spread: float) -> "PriorScale":
        """Return the scale from observed values by cell, (cells,) each: precisions, and precisions times means.

        Cells differ by ``spread`` times the scale, so a cell that is known better than that counts as much as any
        other: it was played more since its arm is good there, and good cells are not where values are expected. The
        scale is that of the level, from which it follows (a mean of random effects; DerSimonian, Laird 1986).
        """
        is_observed = precision > 0
        precision, values = precision[is_observed], moment[is_observed] / precision[is_observed]
        prior = UNSCALED
        for _ in range(_N_STEPS):
            weights = precision / (1 + precision * (spread * prior.scale) ** 2)
            total = float(weights.sum())
            level = float(np.clip(weights @ values / (total + 1), -1.0, 1.0))
            # One standard deviation is taken off: a noisy level near 1 must not leave values without any room.
            prior = cls(level, max(0.0, abs(level) - 1 / math.sqrt(max(1.0, total))))
        return prior

    @property
    def scale(self) -> float:
        """The scale of values relative to the process."""
        return 1 - self.sure**2

    @property
    def rate(self) -> float | None:
        """The expected mean value, in [0, 1]; None without observation or declaration."""
        return (1 + self.level) / 2 if self.level else None

    @property
    def rare_outcome_share(self) -> float:
        """The mean probability of the rarer of two outcomes, in [0, .5]."""
        return (1 - abs(self.level)) / 2

    def shrink_to_level(self, values: Array) -> Array:
        """Return the average of values and the lower bound of the level."""
        return np.asarray((values + math.copysign(self.sure, self.level)) / 2)

    def clip_values(self, values: Array) -> Array:
        """Return values clipped to a plausible range: at least a fifth of the level's distance from its ends."""
        max_value = 1 - _END_MARGIN_SHARE * (1 - abs(self.level))
        return np.asarray(np.clip(values, -max_value, max_value))


UNSCALED: Final = PriorScale()  # where nothing is known of how rare rewards are


@dataclass(frozen=True)
class Kernel:
    """A level plus a process whose covariance is a product of covariances of the blocks of columns.

    That of numbers is Matern-3/2. Of levels it is 1 for the same and one number for all others: the covariance of
    numbers at distance 1. What matters little has a long length: bins that differ in it alone share what they know.
    """

    lengths: Ints  # shape (blocks,), int64: places in `LENGTHS`, one a block
    spread: int  # place in `SPREADS`
    space: Space | None = None  # the blocks of columns; by default each is a number
    common: bool = False  # whether arms have a common part besides, of the covariance `common_covariance`

    @property
    def _parts(self) -> tuple[BlockColumns, ...]:
        return (self.space or Space.numbers(len(self.lengths))).parts

    @property
    def usual_lengths(self) -> Ints:
        """Places of the blocks' usual lengths, (blocks,)."""
        return usual_lengths(self._parts)

    @property
    def _rates(self) -> Array:
        return np.asarray(np.sqrt(3.0) / LENGTHS[self.lengths])

    @property
    def variance(self) -> float:
        """The prior variance of a value at a point."""
        return _LEVEL_DEVIATION**2 + self._variance

    @property
    def _variance(self) -> float:
        return float(SPREADS[self.spread] ** 2)

    def covariance(self, lower: Array, upper: Array, factor_cache: Factors | None = None) -> Array:
        """Return the covariance of averages over bins by their corners, (bins, d) each; shape (bins, bins).

        ``factor_cache`` keeps the factors of these bins, by block and length, from call to call.
        """
        product = np.ones((len(lower), len(lower)))
        for factor in self._iter_factors(self.lengths, lower, upper, factor_cache):
            product *= factor
        return np.asarray(_LEVEL_DEVIATION**2 + self._variance * product + _NUGGET * np.eye(len(lower)))

    def common_covariance(self, lower: Array, upper: Array, factor_cache: Factors | None = None) -> Array:
        """Return the covariance of the arms' common part, with arguments and shape as of `covariance`.

        Features add up in it: a wrong share of people in a bin comes of each feature's density by itself. What a bin
        has beyond that is its own.
        """
        lengths = np.full(len(self.lengths), _COMMON_LENGTH_INDEX)
        total = sum(self._iter_factors(lengths, lower, upper, factor_cache), np.zeros((len(lower), len(lower))))
        return np.asarray(_LEVEL_DEVIATION**2 + total + _COMMON_BIN_DEVIATION**2 * np.eye(len(lower)))

    def _iter_factors(self, lengths: Ints, lower: Array, upper: Array, factor_cache: Factors | None) -> Iterator[Array]:
        """Yield the covariance along each block, from the cache if there is one, and store it there."""
        for index, (part, length) in enumerate(zip(self._parts, lengths.tolist(), strict=True)):
            factor = factor_cache.get((index, length)) if factor_cache is not None else None
            if factor is None:
                factor = _block_covariance(part, lower, upper, float(np.sqrt(3.0) / LENGTHS[length]))
            if factor_cache is not None:
                factor_cache[index, length] = factor
            yield factor

    def within_bin_variances(self, lower: Array, upper: Array) -> Array:
        """Return the variance of the value at a random point of a bin around the bin's average, shape (bins,)."""
        relative_variance = np.prod(self._average_variances(lower, upper), axis=0)
        return np.asarray(self._variance * np.maximum(0.0, 1 - relative_variance))

    def _average_variances(self, lower: Array, upper: Array) -> list[Array]:
        """Return the variance of a bin's average along each block, relative to that of a value, (bins,) each."""
        return [
            _levels_variance(level_membership(part, lower, upper).sum(axis=1), float(rate))
            if part.block.codes
            else _interval_variance((upper - lower)[:, part.columns.start], float(rate))
            for part, rate in zip(self._parts, self._rates, strict=True)
        ]

    def half_difference_variances(self, lower: Array, upper: Array) -> Array:
        """Return the variance of half the difference between a bin's halves by column, shape (bins, columns)."""
        block_variances = self._average_variances(lower, upper)
        total_variance, half_variances = np.prod(block_variances, axis=0), np.zeros_like(lower)
        for part, rate, block_variance in zip(self._parts, self._rates, block_variances, strict=True):
            for j in range(part.columns.start, part.columns.stop):
                half_variance = _half_difference_variance(part, lower, upper, j, float(rate))
                half_variances[:, j] = self._variance * (total_variance / block_variance) * half_variance
        return half_variances


@dataclass(frozen=True)
class ConstantKernel(Kernel):
    """A kernel of arms that differ by a constant and have a common part."""

    common: bool = True
    # shape (bins,): how many times the people who are expected are in each bin, by which an observed value is larger;
    # None: as many as are expected
    crowding: Array | None = None

    @override
    def covariance(self, lower: Array, upper: Array, factor_cache: Factors | None = None) -> Array:
        size = len(lower)
        crowding = np.ones(size) if self.crowding is None else self.crowding
        return np.asarray(_LEVEL_DEVIATION**2 * np.outer(crowding, crowding) + _NUGGET * np.eye(size))


def _block_covariance(part: BlockColumns, lower: Array, upper: Array, rate: float) -> Array:
    """Return the covariance of averages along one block, relative to that of a value; shape (bins, bins)."""
    if part.block.codes:
        return _levels_covariance(part, lower, upper, rate)
    j = part.columns.start
    # Bins share their edges along a feature: few intervals are distinct.
    edges, indices = np.unique(np.stack([lower[:, j], upper[:, j]]), axis=1, return_inverse=True)
    indices = indices.reshape(-1)
    return interval_covariance(edges[0], edges[1], rate)[np.ix_(indices, indices)]


def usual_lengths(parts: tuple[BlockColumns, ...]) -> Ints:
    """Return the default length indices of blocks, (blocks,)."""
    return np.full(len(parts), _USUAL_LENGTH_INDEX_OF_MANY if len(parts) > _MANY_BLOCKS else _USUAL_LENGTH_INDEX)


def _half_difference_variance(part: BlockColumns, lower: Array, upper: Array, column: int, rate: float) -> Array:
    """Return the variance of half the difference of halves along a column, from a value's variance, (bins,)."""
    if not part.block.codes:
        width = (upper - lower)[:, column]
        # A bin's average has the variance of the mean of its halves': alone = (half + across) / 2.
        return np.maximum(0.0, _interval_variance(width / 2, rate) - _interval_variance(width, rate))
    middle = (lower + upper) / 2
    first, second = upper.copy(), lower.copy()
    first[:, column] = second[:, column] = middle[:, column]
    sizes = [level_membership(part, lower, first).sum(axis=1), level_membership(part, second, upper).sum(axis=1)]
    variance = (1 - _level_covariance(rate)) * sum(1 / np.maximum(size, 1) for size in sizes) / 4
    is_split = np.minimum(*sizes) > 0
    return np.asarray(np.where(is_split & ((upper - lower)[:, column] == 1), variance, 0.0))


def _level_covariance(rate: float) -> float:
    """Return the covariance of values at two levels, relative to the variance: as of numbers at distance 1."""
    return float((1 + rate) * np.exp(-rate))


def _levels_covariance(part: BlockColumns, lower: Array, upper: Array, rate: float) -> Array:
    """Return the covariance of averages over the levels of each two bins, from a value's variance, (bins, bins)."""
    membership = level_membership(part, lower, upper).astype(np.float64)
    shares = membership / np.maximum(membership.sum(axis=1, keepdims=True), 1.0)
    level_covariance = _level_covariance(rate)
    return np.asarray(level_covariance + (1 - level_covariance) * shares @ shares.T)


def _levels_variance(levels: Ints, rate: float) -> Array:
    """Return `_levels_covariance` of a bin with itself, from the number of levels in it."""
    level_covariance = _level_covariance(rate)
    return np.asarray(level_covariance + (1 - level_covariance) / np.maximum(levels, 1))


def interval_covariance(lower: Array, upper: Array, rate: float) -> Array:
    """Return the average of (1 + rate t) exp(-rate t), t = |x - y|, over x and y in two intervals, (n, n)."""
    a, b, c, d = lower[:, None], upper[:, None], lower[None, :], upper[None, :]
    double = (
        _second_antiderivative(b - c, rate)
        - _second_antiderivative(a - c, rate)
        - _second_antiderivative(b - d, rate)
        + _second_antiderivative(a - d, rate)
    )
    exact = double / ((b - a) * (d - c))
    middle = rate * np.abs(a + b - c - d) / 2
    is_narrow = rate * np.maximum(b - a, d - c) < _POINT_WIDTH
    return np.asarray(np.clip(np.where(is_narrow, (1 + middle) * np.exp(-middle), exact), 0.0, 1.0))


def _interval_variance(width: Array, rate: float) -> Array:
    """Return the `interval_covariance` of an interval with itself."""
    return np.asarray(2 * _second_antiderivative(width, rate) / width**2)


def _second_antiderivative(t: Array, rate: float) -> Array:
    """Return the second antiderivative of the Matern-3/2 covariance, even and 0 at 0."""
    x = rate * np.abs(t)
    small = x**2 * (1 / 2 - x**2 / 24 + x**3 / 60)
    return np.asarray(np.where(x < 1e-2, small, 2 * x + (x + 3) * np.exp(-x) - 3) / rate**2)
