"""What reports say of every arm, and the rules that choose arms by it: hosts of paper 2's reduction, and the best arm.

All rules see private reports as they would see bits of a fainter coin: an arm of mean m whose n reports are as
informative as n / c^2 rewards has bits of mean 1/2 + (m - 1/2) / c (paper 2, Theorems 11 and 12, with their proxy).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]

PER_REWARD: Final = 4.0
"""Precision of a mean that one reward in [0, 1] adds: a sub-Gaussian proxy of 1/4 (Hoeffding)."""
_TYPICAL: Final = 100.0
"""Precision for which intervals are narrowest: arms a fifth apart take a few times as much."""
_STEPS: Final = 60
"""Halvings of an interval, after which nothing is left of it."""
_AT_RANDOM: Final = 0.2
"""Share of people who play arms at random while the best one is looked for: a fifth saves a tenth of the people."""


@dataclass(frozen=True)
class Evidence:
    """What was released of every arm; all shapes (arms,).

    Attributes
    ----------
    people
        People who reported on each arm, or as many as its share of the coins stands for.
    precision
        Inverse of a sub-Gaussian variance proxy of each arm's estimate: what every release adds is known before it.
    told
        Inverse of the variance of each arm's estimate, ``precision`` or more: what decides who plays what.
    weighted
        Sum of estimates of the mean reward, from 0 to 1, by their precisions.
    losses
        Sum of losses around the middle of the range, each divided by the share of its arm: unbiased, whoever chose
        the rewards.
    """

    people: Array
    precision: Array
    told: Array
    weighted: Array
    losses: Array

    @classmethod
    def none(cls, arms: int) -> "Evidence":
        """Return the evidence of no reports."""
        return cls(*np.zeros((5, arms)))

    def and_(self, people: Array, precision: Array, told: Array, means: Array, losses: Array) -> "Evidence":
        """Return the evidence with one round's estimates counted in; where ``precision`` is 0 nothing was observed."""
        seen = precision > 0
        weighted = self.weighted + np.where(seen, precision * np.where(seen, means, 0.0), 0.0)
        precision, told = self.precision + precision, self.told + told
        return Evidence(self.people + people, precision, told, weighted, self.losses + losses)

    def wider(self, added: int) -> "Evidence":
        """Return the evidence with so many more arms, of which nothing is known."""
        return Evidence(*(np.pad(values, (0, added)) for values in vars(self).values()))

    @property
    def means(self) -> Array:
        """Estimated mean rewards; the middle where nothing is known."""
        known = self.precision > 0
        return np.where(known, self.weighted / np.where(known, self.precision, 1.0), 0.5)

    @property
    def faintness(self) -> Array:
        """c: standard deviation of an estimate by that of as many rewards, 1 or more."""
        known = self.told > 0
        ratio = PER_REWARD * self.people / np.where(known, self.told, 1.0)
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


def repays(evidence: Evidence, playable: NDArray[np.bool_], left: int) -> NDArray[np.bool_]:
    """Return which arms, (arms,), may repay what it costs to know them better; the arm of the highest mean does.

    To halve the variance of an arm's mean takes as many people again as have told of it, each of whom is expected to
    lose its gap. The ``left`` people to come cannot gain more by it than the expectation, under a normal posterior, of
    what the arm has above the leader, if that is positive.
    """
    best = int(np.argmax(np.where(playable, evidence.means, -np.inf)))
    gaps = evidence.means[best] - evidence.means
    variance = 1 / np.maximum(evidence.told, 1e-12)
    spread = np.sqrt(variance + variance[best])
    far = gaps / spread
    gain = spread * (np.exp(-(far**2) / 2) / math.sqrt(2 * math.pi) - far * ndtr(-far))
    return np.asarray(playable & ((left * gain > evidence.people * gaps) | (np.arange(len(gaps)) == best)))


def thompson(evidence: Evidence, playable: NDArray[np.bool_], draws: int, left: int, seed: int) -> Array:
    """Return the share of ``draws`` from the posterior in which each arm is best: Thompson sampling of a batch.

    The posterior is that of as many bits, under a uniform prior on their mean. Arms are left out that no longer repay
    it, with ``left`` people to come.
    """
    faint, heard = evidence.faintness, evidence.people
    bits = np.clip(0.5 + (evidence.means - 0.5) / faint, 0.0, 1.0)
    rng = np.random.default_rng(seed)
    drawn = 0.5 + faint * (rng.beta(1 + heard * bits, 1 + heard * (1 - bits), (draws, len(bits))) - 0.5)
    best = np.where(repays(evidence, playable, left), drawn, -np.inf).argmax(axis=1)
    return np.bincount(best, minlength=len(bits)) / draws


def kl_ucb(evidence: Evidence, playable: NDArray[np.bool_], heard: int, batch: int) -> Array:
    """Return shares that level the indexes of KL-UCB (Garivier and Cappe 2011) when ``batch`` people have reported.

    An arm's index is the largest mean whose divergence from its bits, times their number, is at most ln t. Estimates
    stand still within a batch, so each arm gets the people that lower its index to the common level.
    """
    faint, bits = evidence.faintness, np.clip(0.5 + (evidence.means - 0.5) / evidence.faintness, 0.0, 1.0)
    log, low, high = math.log(heard + batch), float(evidence.means[playable].max()), 0.5 + float(faint.max())

    def wanted(level: float) -> Array:
        above = np.clip(0.5 + (level - 0.5) / faint, 0.0, 1.0)
        needed = log / np.maximum(_divergence(bits, np.maximum(above, bits)), 1e-300)
        return np.where(playable, np.maximum(needed - evidence.people, 0.0), 0.0)

    for _ in range(_STEPS):
        level = (low + high) / 2
        low, high = (level, high) if wanted(level).sum() > batch else (low, level)
    people = wanted(high)
    # What rounding leaves goes to the leader, whose index is the last to come down.
    people[int(np.argmax(np.where(playable, evidence.means, -np.inf)))] += max(0.0, batch - float(people.sum()))
    return np.asarray(people / people.sum())


def _divergence(left: Array, right: Array) -> Array:
    """Kullback-Leibler divergence of bits of these means."""
    small = 1e-12
    p, q = np.clip(left, small, 1 - small), np.clip(right, small, 1 - small)
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def tsallis(losses: Array, playable: NDArray[np.bool_], rate: float, least: float) -> Array:
    """Return the shares of Tsallis-INF (Zimmert and Seldin 2021), of which each playable arm has at least ``least``.

    w_a = 4 / (rate (L_a - x))^2, where x makes their sum 1.
    """
    known = losses[playable] - losses[playable].min()  # what all have in common would cost the equation its digits
    low, high = -2 * math.sqrt(len(known)) / rate, -2 / rate
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if (4 / (rate * (known - middle)) ** 2).sum() < 1 else (low, middle)
    shares = 4 / (rate * (known - high)) ** 2
    weights = np.zeros(len(losses))
    weights[playable] = least + (1 - least * len(known)) * shares / shares.sum()
    return weights


def track(evidence: Evidence, playable: NDArray[np.bool_], best: int, batch: int) -> Array:
    """Return shares that lead to the proportions with which the best arm is known soonest (Garivier and Kaufmann 2016).

    For normal estimates: with y such that the r_a = y / (d_a - y) have squares of sum 1, arm a gets r_a times the
    people of the best one, where d_a is the squared gap. A gap counts for what it is at least, and some people play
    arms at random, so that no arm is left out because of a few bad reports.
    """
    variance = 1 / np.maximum(evidence.precision, 1e-12)
    both = variance + variance[best]
    sure = np.maximum(np.abs(evidence.means[best] - evidence.means) - np.sqrt(both), 0.0)
    gaps = sure**2 + both
    others = playable & (np.arange(len(gaps)) != best)
    low, high = 0.0, float(gaps[others].min())
    for _ in range(_STEPS):
        y = (low + high) / 2
        low, high = (y, high) if ((y / np.maximum(gaps[others] - y, 1e-300)) ** 2).sum() < 1 else (low, y)
    ratios = np.where(others, low / np.maximum(gaps - low, 1e-300), 0.0)
    ratios[best] = 1.0
    shares = (1 - _AT_RANDOM) * ratios / ratios.sum() + _AT_RANDOM * playable / playable.sum()
    behind = np.maximum(shares * (evidence.people.sum() + batch) - evidence.people, 0.0) * playable
    return np.asarray(behind / behind.sum())
