"""The posterior of every arm's mean reward: what private reports say of it, and how sure that is.

Private reports are seen as bits of a fainter coin would be: an arm of mean m whose n reports are as informative as
n / c^2 rewards has bits of mean 1/2 + (m - 1/2) / c (Zheng et al. 2020, Theorems 11 and 12, with their proxy).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.bandit.success_counts import SuccessCounts

Array = NDArray[np.float64]

PER_REWARD: Final = 4.0
"""Precision of a mean that one reward in [0, 1] adds: a sub-Gaussian proxy of 1/4 (Hoeffding)."""
_TYPICAL: Final = 100.0
"""Precision for which intervals are narrowest: arms a fifth apart take a few times as much."""
_RARE: Final = 0.02
"""Share of successes, or of failures, from which on the loss of a wrong choice is known well enough to plan by it."""


@dataclass(frozen=True)
class ArmPosterior:
    """A posterior over the mean reward of every arm, from what was released of it; all shapes (arms,)."""

    people: Array  # people who reported on each arm, or as many as its share of the coins stands for
    # inverse of a sub-Gaussian variance proxy of each arm's estimate: what every release adds is known before it
    precision: Array
    weighted: Array  # sum of estimates of the mean reward, from 0 to 1, by their precisions: what guarantees rest on
    # sum of losses around the middle of the range, each divided by the share of its arm: unbiased, no matter who chose
    # the rewards
    losses: Array
    # successes and trials of each arm, with the variance that they have: what decides who plays what
    counts: SuccessCounts

    @classmethod
    def none(cls, arms: int) -> Self:
        """Return the posterior of no reports."""
        none = np.zeros(arms)
        return cls(none, none, none, none, SuccessCounts.none(arms))

    def updated(
        self, people: Array, precision: Array, means: Array, losses: Array, counts: SuccessCounts
    ) -> "ArmPosterior":
        """Return the posterior with one round's estimates counted in; where ``precision`` is 0 nothing was observed."""
        seen = precision > 0
        weighted = self.weighted + np.where(seen, precision * np.where(seen, means, 0.0), 0.0)
        precision, losses = self.precision + precision, self.losses + losses
        return type(self)(self.people + people, precision, weighted, losses, self.counts.plus(counts, seen))

    def with_arms(self, added: int) -> Self:
        """Return the posterior with so many more arms, of which nothing is known."""
        own = (self.people, self.precision, self.weighted, self.losses)
        people, precision, weighted, losses = (np.pad(values, (0, added)) for values in own)
        return type(self)(people, precision, weighted, losses, self.counts.with_arms(added))

    @property
    def means(self) -> Array:
        """Estimated mean rewards; the middle where nothing is known."""
        return self.counts.means

    @property
    def variances(self) -> Array:
        """Variances of `means`; infinite where nothing is known."""
        return self.counts.variances

    @property
    def faintness(self) -> Array:
        """c: standard deviation of an estimate by that of as many rewards, 1 or more."""
        return self.counts.faintness

    @property
    def bounded(self) -> Array:
        """Estimated mean rewards in the middle of `radii`, whose weights were known ahead of every release."""
        known = self.precision > 0
        return np.where(known, self.weighted / np.where(known, self.precision, 1.0), 0.5)

    @property
    def rare(self) -> bool:
        """Whether few rewards may be successes, or failures, of all arms together: one sd from 2 in 100 or fewer."""
        level, deviation = self.counts.level
        return min(level, 1 - level) - deviation < _RARE

    def radii(self, failure: float) -> Array:
        """Return radii around `bounded` means that hold at all times together but with probability ``failure``.

        Normal mixtures of the likelihood (Robbins 1970): valid whatever decides who plays what, and when that ends.
        """
        log = math.log(len(self.people) / failure) + _mixing(self.precision)
        known = np.maximum(self.precision, 1e-12)
        return np.where(self.precision > 0, np.sqrt(2 * log * (self.precision + _TYPICAL)) / known, np.inf)

    def lead(self, playable: NDArray[np.bool_], failure: float) -> tuple[int, Array]:
        """Return the arm of the highest `bounded` mean, and by what it beats each other one; above 0: for sure.

        If every other playable arm is beaten at any time, the leader is the best arm but with probability ``failure``.
        A pair's likelihood is mixed arm by arm: a wrong leader takes that one arm and the best one are off together by
        their difference, which happens with probability failure / (arms - 1) to each.
        """
        best = int(np.argmax(np.where(playable, self.bounded, -np.inf)))
        sure = self.precision**2 / (self.precision + _TYPICAL)
        both = sure * sure[best] / np.maximum(sure + sure[best], 1e-300)
        away = both * (self.bounded[best] - self.bounded) ** 2 / 2
        mixing = _mixing(self.precision)
        beaten = away - math.log(max(1, int(playable.sum()) - 1) / failure) - mixing - mixing[best]
        beaten[best] = np.inf
        return best, np.where(playable, beaten, np.inf)


def _mixing(precision: Array) -> Array:
    return np.asarray(0.5 * np.log1p(precision / _TYPICAL))


@lru_cache(maxsize=4096)
def proxy(share: float) -> float:
    """Return a sub-Gaussian variance proxy of a score of -1, 0 or 1 that differs from 0 with probability ``share``.

    The largest, over the sign's bias, of 2 (ln E e^(t X) - t E X) / t^2; 1 at share 1.
    """
    if share >= 1:
        return 1.0
    t = np.concatenate([-np.geomspace(1e-2, 40, 120)[::-1], np.geomspace(1e-2, 40, 120)])[:, None]
    positive = np.linspace(0.0, 1.0, 41)
    exponent = np.log1p(share * (positive * np.expm1(t) + (1 - positive) * np.expm1(-t)))
    return float(max(share, np.max(2 * (exponent - t * share * (2 * positive - 1)) / t**2)))
