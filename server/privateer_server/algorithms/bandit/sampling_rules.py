"""Rules by which a round's people are shared out among arms: hosts of a reduction, and the best arm's rule."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from privateer_server.algorithms.bandit.fitted_posterior import FittedPosterior, gains_above
from privateer_server.algorithms.bandit.posterior import ArmPosterior

Array = NDArray[np.float64]

_STEPS: Final = 60
"""Halvings of an interval, after which nothing is left of it."""
_AT_RANDOM: Final = 0.2
"""Share of people who play arms at random while the best one is looked for: a fifth saves a tenth of the people."""
_CAUTION: Final = 8
"""Where rewards are rare, what an arm may still gain counts for so many times as much: few of them mislead."""
_MANY: Final = 10
_UNLUCKY: Final = 2.0
"""Standard deviations behind the leader within which an arm of many may only have been unlucky, and is kept."""
_ENOUGH: Final = 6000
"""Arms, and people by arm in rewards as clear as their own, from which on a prior is fitted: fewer misjudge it."""


def tells_apart(posterior: ArmPosterior, playable: NDArray[np.bool_], horizon: int) -> bool:
    """Whether arms are many, and their people to the horizon enough, that the spread of arms is known in time.

    A report of an arm is worth 1 / c^2 rewards. Where rewards are rare they are far from normal, and tell too little.
    """
    arms = int(playable.sum())
    worth = horizon / (arms * float(np.square(posterior.faintness[playable]).mean()))
    return arms >= _MANY and worth > _ENOUGH and not posterior.rare


def repays(posterior: ArmPosterior, playable: NDArray[np.bool_], left: int) -> NDArray[np.bool_]:
    """Return which arms, (arms,), may repay what it costs to know them better; the arm of the highest mean does.

    To halve the variance of an arm's mean takes as many people again as have reported on it, each of whom is expected
    to lose its gap. The ``left`` people to come cannot gain more by it than the expectation, under a normal posterior,
    of what the arm has above the leader, if that is positive. Noise may leave an estimate below 0: the mean is not, so
    that such an arm is behind the leader by no more than the leader has.
    """
    means = np.clip(posterior.means, 0.0, 1.0)
    best = int(np.argmax(np.where(playable, posterior.means, -np.inf)))
    gaps = np.maximum(means[best] - means, 0.0)
    variance = np.minimum(posterior.variances, 1e12)
    gain = gains_above(gaps, np.sqrt(variance + variance[best]))
    return np.asarray(playable & ((left * gain > posterior.people * gaps) | (np.arange(len(gaps)) == best)))


def thompson(posterior: ArmPosterior, playable: NDArray[np.bool_], draws: int, left: int, seed: int) -> Array:
    """Return the share of ``draws`` from the posterior in which each arm is best: Thompson sampling of a batch.

    The posterior is that of as many bits, under a uniform prior on their mean. Arms are left out that no longer repay
    it, with ``left`` people to come.
    """
    counts, faint = posterior.counts, posterior.faintness
    bits = np.clip(0.5 + (posterior.means - 0.5) / faint, 0.0, 1.0)
    first, second = 1 + counts.known * bits, 1 + counts.known * (1 - bits)
    # Bits of a faint coin may be such as no mean from 0 to 1 has.
    low, high = (betainc(first, second, 0.5 + side / (2 * faint)) for side in (-1, 1))
    quantiles = low + (high - low) * np.random.default_rng(seed).random((draws, len(bits)))
    drawn = 0.5 + faint * (betaincinv(first, second, quantiles) - 0.5)
    kept = repays(posterior, playable, _CAUTION * left if posterior.rare else left)
    return _best_of(drawn, kept)


def fitted_thompson(posterior: ArmPosterior, playable: NDArray[np.bool_], draws: int, left: int, seed: int) -> Array:
    """Return the share of draws in which each arm is best, under a prior with the spread that arms seem to have.

    Arms are left out as by `repays`, by what this posterior expects of them: where all others are close to each other,
    an arm that looks far worse after few reports is taken for unlucky, and is asked again. No arm is left out that is
    two standard deviations behind or less: one of thirty that are close to each other is so by chance, and if it is the
    best it would be lost for good. It costs little, since few draws have such an arm above all others.
    """
    known = FittedPosterior.of(posterior.means, posterior.variances, playable)
    best = int(np.argmax(np.where(playable, known.expected, -np.inf)))
    gaps, deviations = known.expected[best] - known.expected, known.deviations
    unlucky = gaps < _UNLUCKY * np.sqrt(deviations**2 + deviations[best] ** 2)
    kept = playable & (unlucky | (left * known.gains(best) > posterior.people * gaps))
    kept[best] = True
    return _best_of(known.draws(draws, np.random.default_rng(seed)), kept)


def _best_of(drawn: Array, kept: NDArray[np.bool_]) -> Array:
    """Return the share of draws (draws, arms) in which each of the arms that are kept is best."""
    best = np.where(kept, drawn, -np.inf).argmax(axis=1)
    return np.bincount(best, minlength=len(kept)) / len(drawn)


def kl_ucb(posterior: ArmPosterior, playable: NDArray[np.bool_], reported: int, batch: int) -> Array:
    """Return shares that level the indexes of KL-UCB (Garivier and Cappe 2011) when ``batch`` people have reported.

    An arm's index is the largest mean whose divergence from its bits, times their number, is at most ln t. Estimates
    stand still within a batch, so each arm gets the people that lower its index to the common level.
    """
    faint, bits = posterior.faintness, np.clip(0.5 + (posterior.means - 0.5) / posterior.faintness, 0.0, 1.0)
    log, low, high = math.log(reported + batch), float(posterior.means[playable].max()), 0.5 + float(faint.max())

    def wanted(level: float) -> Array:
        above = np.clip(0.5 + (level - 0.5) / faint, 0.0, 1.0)
        needed = log / np.maximum(_divergence(bits, np.maximum(above, bits)), 1e-300)
        return np.where(playable, np.maximum(needed - posterior.people, 0.0), 0.0)

    for _ in range(_STEPS):
        level = (low + high) / 2
        low, high = (level, high) if wanted(level).sum() > batch else (low, level)
    people = wanted(high)
    # What rounding leaves goes to the leader, whose index is the last to come down.
    people[int(np.argmax(np.where(playable, posterior.means, -np.inf)))] += max(0.0, batch - float(people.sum()))
    return np.asarray(people / people.sum())


def _divergence(left: Array, right: Array) -> Array:
    """Return the Kullback-Leibler divergence of bits of these means."""
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


def track(posterior: ArmPosterior, playable: NDArray[np.bool_], best: int, batch: int) -> Array:
    """Return shares that lead to the proportions with which the best arm is known soonest (Garivier and Kaufmann 2016).

    For normal estimates: with y such that the r_a = y / (d_a - y) have squares of sum 1, arm a gets r_a times the
    people of the best one, where d_a is the squared gap. A gap counts for what it is at least, and some people play
    arms at random, so that no arm is left out because of a few bad reports.
    """
    variance = 1 / np.maximum(posterior.precision, 1e-12)
    both = variance + variance[best]
    sure = np.maximum(np.abs(posterior.bounded[best] - posterior.bounded) - np.sqrt(both), 0.0)
    gaps = sure**2 + both
    others = playable & (np.arange(len(gaps)) != best)
    low, high = 0.0, float(gaps[others].min())
    for _ in range(_STEPS):
        y = (low + high) / 2
        low, high = (y, high) if ((y / np.maximum(gaps[others] - y, 1e-300)) ** 2).sum() < 1 else (low, y)
    ratios = np.where(others, low / np.maximum(gaps - low, 1e-300), 0.0)
    ratios[best] = 1.0
    shares = (1 - _AT_RANDOM) * ratios / ratios.sum() + _AT_RANDOM * playable / playable.sum()
    behind = np.maximum(shares * (posterior.people.sum() + batch) - posterior.people, 0.0) * playable
    return np.asarray(behind / behind.sum())
