"""The posterior of every arm's mean reward: what private reports say of it, and how sure that is.

Private reports are seen as bits of a fainter coin would be: an arm of mean m whose n reports are as informative as
n / c^2 rewards has bits of mean 1/2 + (m - 1/2) / c (paper 2, Theorems 11 and 12, with their proxy).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PER_REWARD: Final = 4.0
"""Precision of a mean that one reward in [0, 1] adds: a sub-Gaussian proxy of 1/4 (Hoeffding)."""
_TYPICAL: Final = 100.0
"""Precision for which intervals are narrowest: arms a fifth apart take a few times as much."""


@dataclass(frozen=True)
class ArmPosterior:
    """A posterior over the mean reward of every arm, from what was released of it; all shapes (arms,).

    Attributes
    ----------
    people
        People who reported on each arm, or as many as its share of the coins stands for.
    precision
        Inverse of a sub-Gaussian variance proxy of each arm's estimate: what every release adds is known before it.
    information
        Inverse of the variance of each arm's estimate, ``precision`` or more: what decides who plays what.
    weighted
        Sum of estimates of the mean reward, from 0 to 1, by their precisions.
    losses
        Sum of losses around the middle of the range, each divided by the share of its arm: unbiased, whoever chose
        the rewards.
    """

    people: Array
    precision: Array
    information: Array
    weighted: Array
    losses: Array

    @classmethod
    def none(cls, arms: int) -> Self:
        """Return the posterior of no reports."""
        return cls(*np.zeros((5, arms)))

    def updated(
        self, people: Array, precision: Array, information: Array, means: Array, losses: Array
    ) -> "ArmPosterior":
        """Return the posterior with one round's estimates counted in; where ``precision`` is 0 nothing was observed."""
        seen = precision > 0
        weighted = self.weighted + np.where(seen, precision * np.where(seen, means, 0.0), 0.0)
        precision, information = self.precision + precision, self.information + information
        return type(self)(self.people + people, precision, information, weighted, self.losses + losses)

    def with_arms(self, added: int) -> Self:
        """Return the posterior with so many more arms, of which nothing is known."""
        return type(self)(*(np.pad(values, (0, added)) for values in vars(self).values()))

    @property
    def means(self) -> Array:
        """Estimated mean rewards; the middle where nothing is known."""
        known = self.precision > 0
        return np.where(known, self.weighted / np.where(known, self.precision, 1.0), 0.5)

    @property
    def faintness(self) -> Array:
        """c: standard deviation of an estimate by that of as many rewards, 1 or more."""
        known = self.information > 0
        ratio = PER_REWARD * self.people / np.where(known, self.information, 1.0)
        return np.sqrt(np.where(known, np.maximum(ratio, 1.0), 1.0))

    def radii(self, failure: float) -> Array:
        """Return radii around the means, all of which hold at all times together but with probability ``failure``.

        Normal mixtures of the likelihood (Robbins 1970): valid whatever decides who plays what, and when that ends.
        """
        log = math.log(len(self.people) / failure) + _mixing(self.precision)
        known = np.maximum(self.precision, 1e-12)
        return np.where(self.precision > 0, np.sqrt(2 * log * (self.precision + _TYPICAL)) / known, np.inf)

    def lead(self, playable: NDArray[np.bool_], failure: float) -> tuple[int, Array]:
        """Return the arm of the highest mean, and by what it beats each other one; above 0: for sure.

        If every other playable arm is beaten at any time, the leader is the best arm but with probability ``failure``.
        A pair's likelihood is mixed arm by arm: a wrong leader takes that one arm and the best one are off together by
        their difference, which happens with probability failure / (arms - 1) to each.
        """
        best = int(np.argmax(np.where(playable, self.means, -np.inf)))
        sure = self.precision**2 / (self.precision + _TYPICAL)
        both = sure * sure[best] / np.maximum(sure + sure[best], 1e-300)
        away = both * (self.means[best] - self.means) ** 2 / 2
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
