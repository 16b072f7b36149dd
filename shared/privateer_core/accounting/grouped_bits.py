"""The central guarantee of a bit in a batch or in a public group of it: the worst of all crowds."""

import heapq
import math
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.accounting.amplification import TAIL_MASS, trim_binomial
from privateer_core.accounting.events import EPSILON_MAX
from privateer_core.accounting.numerics import largest_local_epsilon, smallest_epsilon
from privateer_core.arrays import Array
from privateer_core.errors import SpecError

_ROUNDING_FACTOR: Final = 1 + 1e-5
"""Factor that covers rounding errors of differences of binomial tails."""
_EPSILON_RATIO_MIN: Final = 1 + 1e-7
"""A local epsilon nearer to epsilon is rounded up: ``_ROUNDING_FACTOR`` would not cover their difference."""
_TOLERANCE: Final = 0.005
"""Relative distance of the bound from the delta of a crowd, at which the search for the worst crowd stops."""
_GROUP_TOLERANCE: Final = 0.05
"""The same for each size of a group that varies."""
_SMALL: Final = 0.02
"""A size whose part is below this share of the usual one is not searched."""
_SIZES: Final = 24
"""Least number of sizes to which the number of people in a group is rounded down, if it varies that much."""
_NEAR: Final = 1.02
"""Ratio of a bound to the largest delta so far from which on a crowd in the middle would not end the search."""
_SAFE_DELTA_SHARE: Final = 0.5
"""The bound of a smaller batch holds for a larger batch if it is below this share of delta, despite rounding."""
_RESOLUTION: Final = 1e-4
"""Steps in which local epsilons are searched and published: 0.001 may change epsilon by a fiftieth."""


@lru_cache(maxsize=1 << 16)
def grouped_delta(epsilon: float, local_epsilon: float, batch: int, share: float = 1.0) -> float:
    """Return delta at ``epsilon`` of a randomized bit in a shuffled batch, or in a public group of it.

    This is a certified upper bound for replacement neighbours, and above the delta of a possible crowd by half a
    hundredth at most for everybody in one group. A message is (coins, bit). Coins choose the group, and do not change
    the true bit within a group (docs/privacy/shuffling.md has the proof).

    Parameters
    ----------
    epsilon
        Central epsilon, > 0.
    local_epsilon
        Epsilon of one report, > 0.
    batch
        Number of reports that the amplification relies on, the participant's included, >= 1.
    share
        Probability, in (0, 1], with which coins put another participant in the participant's group.

    Notes
    -----
    With e = e^epsilon, p = l / (l + 1) for l = e^local_epsilon, q = 1 - p, and S bits 1 of the others, delta is the
    largest (p - e q) P(S = t - 1) - (e - 1) P(S >= t). Fewer others hide less: for a to b of k others with bit 1 it is
    at most that of a with bit 1 and k - b with bit 0.
    """
    if local_epsilon <= epsilon:
        return 8 * TAIL_MASS
    crowds = _Crowds(epsilon, max(local_epsilon, epsilon * _EPSILON_RATIO_MIN))
    sizes = [(batch - 1, 1.0)] if share == 1 else _round_down(batch - 1, share)
    alike_deltas = [crowds.delta(size, 0) for size, _ in sizes]
    # About the part of a size in the result, without a search: it says what is small.
    usual = sum(mass * delta for (_, mass), delta in zip(sizes, alike_deltas, strict=True)) / len(sizes)
    tolerance = _TOLERANCE if share == 1 else _GROUP_TOLERANCE
    delta, bound = 0.0, 1.0
    for (size, mass), alike_delta in zip(sizes, alike_deltas, strict=True):
        # The bound of a smaller size holds for a larger size, too.
        if mass * bound > _SMALL * usual:
            bound = crowds.worst_delta(size, alike_delta, tolerance * max(alike_delta, usual / mass))
        delta += mass * bound
    return min(1.0, (8 * TAIL_MASS + delta) * _ROUNDING_FACTOR)


def _round_down(trials: int, probability: float) -> list[tuple[int, float]]:
    """Return a few numbers to which a binomial is rounded down, and their probabilities."""
    counts, masses = trim_binomial(trials, probability)
    mean, deviation = trials * probability, math.sqrt(trials * probability * (1 - probability))
    # Outside of these, numbers are rare. Larger ones also hide a participant better.
    low, high = math.floor(mean - 7 * deviation), math.ceil(mean + 4 * deviation)
    low, high = max(1, low - int(counts[0])), min(len(counts), high - int(counts[0]))
    starts = np.append(0, np.arange(low, high, max(1, (high - low) // _SIZES)))
    rounded = zip(counts[starts].astype(int).tolist(), np.add.reduceat(masses, starts).tolist(), strict=True)
    return [(size, mass) for size, mass in rounded if mass]


@lru_cache(maxsize=4096)
def grouped_local_epsilon(epsilon: float, delta: float, batch: int, limit: float, share: float = 1.0) -> float:
    """Return the largest local epsilon, at most ``limit``, of a bit whose group is (epsilon, delta)-private.

    It is a multiple of 0.0001, and at least ``min(epsilon, limit)``. The parameters are those of `grouped_delta` and of
    `privateer_core.accounting.amplification.amplified_local_epsilon`.
    """
    if batch < 1:
        raise SpecError("the amplification relies on no report", field="privacy.honest_fraction", remedy="raise it")
    smaller_batch = 1 << (batch.bit_length() - 1)
    if grouped_delta(epsilon, limit, smaller_batch, share) <= _SAFE_DELTA_SHARE * delta:
        return limit
    least = min(epsilon, limit)
    local_epsilon = largest_local_epsilon(
        lambda e: grouped_delta(epsilon, e, batch, share), delta, least, limit, _RESOLUTION
    )
    # The bound is above the worst crowd by a tolerance that varies, so it may rise a little with epsilon, too.
    n_steps = 1
    while local_epsilon > least and not _is_kept_above(epsilon, delta, local_epsilon, batch, share):
        local_epsilon = max(least, (round(local_epsilon / _RESOLUTION) - n_steps) * _RESOLUTION)
        n_steps *= 2
    return local_epsilon


def _is_kept_above(epsilon: float, delta: float, local_epsilon: float, batch: int, share: float) -> bool:
    """Return whether the accountant's search for epsilon at ``delta`` finds no larger one than ``epsilon``."""
    found = smallest_epsilon(
        lambda e: e >= epsilon and grouped_delta(e, local_epsilon, batch, share) <= delta, EPSILON_MAX
    )
    return found <= epsilon * _EPSILON_RATIO_MIN


class _Crowds:
    """Privacy losses of a bit among other participants' bits: delta at an epsilon, for a local epsilon."""

    def __init__(self, epsilon: float, local_epsilon: float) -> None:
        self._gap = math.expm1(epsilon)
        self._gain = -math.expm1(epsilon - local_epsilon) / (1 + math.exp(-local_epsilon))  # p - e q
        self._loss = math.expm1(epsilon + local_epsilon) / (1 + math.exp(local_epsilon))  # e p - q
        self._flip = 1 / (1 + math.exp(local_epsilon))
        self._log_ratio = math.log(self._loss / self._gain)
        self._flips: dict[int, tuple[int, Array]] = {}
        self._sums: dict[int, tuple[Array, Array]] = {}
        self._excess = 0  # of the last best count over that of normal noise

    def worst_delta(self, others: int, largest: float, slack: float) -> float:
        """Return an upper bound of delta over all crowds of a size, at most about ``slack`` above the largest delta.

        ``largest`` is that of a crowd. The interval of the numbers of bits 1 with the largest bound is halved until one
        number has almost that delta.
        """
        intervals = [(-self._gain, 0, others)]
        while True:
            bound, low, high = heapq.heappop(intervals)
            if low == high or -bound <= largest + slack:
                return -bound
            middle = (low + high) // 2
            if -bound < _NEAR * largest:
                largest = max(largest, self.delta(middle, others - middle))
            for start, end in ((low, middle), (middle + 1, high)):
                heapq.heappush(intervals, (-self.delta(start, others - end), start, end))

    def delta(self, ones: int, zeros: int) -> float:
        """Return delta for numbers of other participants with bit 1, and with bit 0.

        A batch has Y - U bits 1 more than true ones: U true bits 1 are flipped, and Y true bits 0.
        """
        (first_flipped, flipped), (first_gained, _) = self._flip_probabilities(ones), self._flip_probabilities(zeros)
        rises, values = self._find_delta_sums(zeros)
        # The first place at which the sum does not rise any more is the best, about where it is for normal noise.
        variance = (ones + zeros) * self._flip * (1 - self._flip)
        usual = first_flipped - first_gained + round((zeros - ones) * self._flip + variance * self._log_ratio)
        first, last = -len(flipped), len(values) - 1
        high = min(max(usual + self._excess, first + 1), last)
        low, step = high - 1, 1
        while low > first and _sum_products(flipped, rises, low) >= 0:
            low, high, step = max(first, low - step), low, 2 * step
        while high < last and _sum_products(flipped, rises, high) < 0:
            low, high, step = high, min(last, high + step), 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _sum_products(flipped, rises, middle) >= 0 else (middle, high)
        self._excess = high - usual
        above = float(flipped[: max(0, -high)].sum())  # with so few flipped bits any Y is enough
        return max(0.0, _sum_products(flipped, values, high) - self._gap * above)

    def _find_delta_sums(self, trials: int) -> tuple[Array, Array]:
        """Return two series by the number of flipped bits: the rise of delta before it, and delta from it on."""
        if trials not in self._sums:
            masses = self._flip_probabilities(trials)[1]
            before, at = np.append(0.0, masses), np.append(masses, 0.0)
            values = self._gain * before - self._gap * np.cumsum(at[::-1])[::-1]
            self._sums[trials] = self._gain * before - self._loss * at, values
        return self._sums[trials]

    def _flip_probabilities(self, trials: int) -> tuple[int, Array]:
        """Return the probabilities of the numbers of flipped bits that occur, and the first of these numbers."""
        if trials not in self._flips:
            counts, masses = trim_binomial(trials, self._flip)
            self._flips[trials] = int(counts[0]), masses
        return self._flips[trials]


def _sum_products(left: Array, right: Array, shift: int) -> float:
    """Return the sum of left[i] right[i + shift] over all places that both have."""
    low, high = max(0, -shift), min(len(left), len(right) - shift)
    return float(left[low:high] @ right[low + shift : high + shift]) if low < high else 0.0
