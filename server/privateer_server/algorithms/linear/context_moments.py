"""Moments of contexts as far as people have reported them, and the slopes of residuals that follow from them."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privateer_core.algorithms.linear.design_matrix import DesignMatrix, prior_moments
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.reports import directions, matrix_of, weights

Array = NDArray[np.float64]
PEOPLE: Final = 1 << 15
_LEAST: Final = 1e-3
"""The least second moment in any direction, and share of answers, that is believed."""
_WIDE: Final = 2.0
"""Squared length to which whitened features are cut, by their number."""
_MIDDLE: Final = 0.5
"""Share of a row's squared length that its coordinate 1 has: products with it tell means."""
_MEANS: Final = (0.2, 0.3)
"""Variance of whitened features' means: the least, and the one before anybody tells."""
_PAIRS: Final = (0.003, 0.1)
"""Variance of what they have to do with each other: the least, and the most, which is that before anybody tells."""
_CHANCE: Final = 1.2
"""Mean square of what is reported, by that of noise, which is taken for noise alone."""
_INSIDE: Final = 0.98
_APART: Final = 1e-3
"""The largest mean of a number in [-1, 1], and the least variance of a coordinate."""
_TOGETHER: Final = 0.95
"""No two coordinates are taken to be correlated more than this."""
_NEVER: Final = 1e-9


@dataclass(frozen=True)
class Slopes:
    """The expected sums of a round, as linear functions of the parameters."""

    # shape (classes, arms, d, d): the mean vector of a class in an arm's block, by the arm's parameter theta less the
    # mean that the policy has
    matrices: Array
    # shape (classes, arms, d): that mean vector if the policy's means are true, since residuals are clipped
    offsets: Array
    # shape (classes, arms, d, d): by how people's rewards differ from what is expected, the covariance of a person's
    # vector in the block
    spreads: Array


def root(moments: Array, power: float) -> Array:
    """Return a power of a symmetric matrix, of which too small eigenvalues are raised."""
    values, vectors = np.linalg.eigh(moments)
    return np.asarray((vectors * np.maximum(values, _LEAST) ** power) @ vectors.T)


def people(design: DesignMatrix, moments: Array, rng: np.random.Generator, count: int = PEOPLE) -> Array:
    """Draw rows (count, d): normal with these second moments, numbers within their bounds, and answers of 1 and -1.

    An answer is yes where a normal variable is below a cut, so that yes is as frequent as the moments say; what answers
    have to do with each other is less than they say.
    """
    middle = moments[0, 1:]
    spread = root(moments[1:, 1:] - np.outer(middle, middle), 0.5)
    moved = rng.normal(size=(count, len(middle))) @ spread
    drawn, bounded, signs = middle + moved, design.bounded, design.signs
    drawn[:, bounded] = np.clip(drawn[:, bounded], -1.0, 1.0)
    cuts = ndtri(np.clip((1 + middle[signs]) / 2, _LEAST, 1 - _LEAST)) * np.sqrt(np.square(spread).sum(axis=0))[signs]
    drawn[:, signs] = np.where(moved[:, signs] < cuts, 1.0, -1.0)
    return np.concatenate([np.ones((count, 1)), drawn], axis=1)


def slopes(policy: LinearPolicy, moments: Array, count: int = PEOPLE, variance: float = 0.25) -> Slopes:
    """Return the slopes of a policy, over so many people with these second moments and coins of all classes.

    Rewards vary by ``variance`` at most, which is known of people's rewards on the whole: the policy of a round may not
    have known.

    With omega the weight of the expected reward m of the arm played, l' the link's derivative and w the whitened
    direction, the matrix of an arm is the mean of omega l' w x^T over those who play it. All of these are the open
    round's, whoever decided; who plays an arm is what the policies say that decided (`LinearPolicy.followed`).
    """
    rng = np.random.default_rng([policy.seed, policy.version])
    rows = people(policy.design, moments, rng, count)
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms, own = policy.played(rows, coins)
    products = np.einsum("nd,nd->n", rows, policy.means[arms])
    link = policy.rewards_link
    means = link.means(products)
    weighted = weights(means)[:, None] * directions(rows @ policy.whitening)
    tilted, missed = link.slopes(products)[:, None] * rows, link.truths(products) - means
    classes, count = policy.classes, len(policy.means)
    d = rows.shape[1]
    matrices, offsets = np.zeros((classes, count, d, d)), np.zeros((classes, count, d))
    spreads, differ = np.zeros((classes, count, d, d)), weighted * np.minimum(means * (1 - means), variance)[:, None]
    for one in range(classes):
        of_class = max(1, int((own == one).sum()))
        for arm in range(count):
            those = np.flatnonzero((own == one) & (arms == arm))
            matrices[one, arm] = weighted[those].T @ tilted[those] / of_class
            offsets[one, arm] = missed[those] @ weighted[those] / of_class
            spreads[one, arm] = weighted[those].T @ differ[those] / of_class
    return Slopes(matrices, offsets, spreads)


@dataclass(frozen=True)
class Features:
    """Estimated moments of whitened features."""

    # means, covariances: shapes (d - 1,) and (d - 1, d - 1): 0 and the identity if what was assumed is true
    means: Array
    covariances: Array
    doubt: float  # the square of how far second moments may be off in any direction, relative to what they are


class Contexts:
    """The second moments that people report of their rows, and what follows from them.

    design: what rows are made of.
    """

    def __init__(self, design: DesignMatrix) -> None:
        self.design, self.assumed = design, prior_moments(design)
        d, self._middle = design.dimension, self.assumed[0, 1:]
        covariances = self.assumed[1:, 1:] - np.outer(self._middle, self._middle)
        self._whiten, self._back = root(covariances, -0.5), root(covariances, 0.5)
        self._lengths = np.full(d, math.sqrt((1 - _MIDDLE) / (_WIDE * max(1, d - 1))))
        self._lengths[0] = math.sqrt(_MIDDLE)

    @property
    def telling(self) -> Array:
        """What rows are multiplied with, (d, d): makes the coordinate 1 and whitened features, both shortened."""
        matrix = np.eye(len(self._lengths))
        matrix[1:, 1:], matrix[0, 1:] = self._whiten, -self._middle @ self._whiten
        return np.asarray(matrix * self._lengths)

    def weighed(self, sums: Array, people: int, noise: float, share: float) -> tuple[Array, Array]:
        """Return second moments of whitened rows times their precisions, and these, (d, d) each.

        sums: the packed sum of what ``people`` reported.
        noise: its variance in a coordinate.
        share: that of a report's squared length.
        """
        d = self.design.dimension
        scale = math.sqrt(share) * np.outer(self._lengths, self._lengths)
        # Of two different coordinates, what is packed is the product times the square root of 2.
        noisy = noise / (people * scale) ** 2 * (1 + np.eye(d)) / 2
        precision = 1 / (noisy + 1 / people)
        return precision * matrix_of(sums / people, d) / scale, precision

    def features(self, moments: Array, precision: Array) -> Features:
        """Return what is known of whitened features, by what was reported in all.

        Means and covariances are shrunk by empirical Bayes: as far as their mean squares are what noise makes.
        """
        means, off = _shrunk_means(moments[0, 1:], precision[0, 1:])
        sure = precision[1:, 1:]
        raw = moments[1:, 1:] / np.maximum(sure, _NEVER) - np.outer(means, means)
        pairs = ~np.eye(len(means), dtype=bool)
        spreads = np.where(pairs, _spread_of(raw[pairs], sure[pairs]), _PAIRS[1])
        kept = sure / (sure + 1 / spreads)
        errors = float((1 / (sure + 1 / spreads)).sum(axis=1).mean())
        return Features(means, kept * raw + (1 - kept) * np.eye(len(means)), errors + off / 2)

    def moments(self, known: Features) -> Array:
        """Return second moments (d, d) of rows; bounds hold, and what says yes or no has squares of 1."""
        bounded, signs = self.design.bounded, self.design.signs
        middle = self._middle + known.means @ self._back
        middle = np.where(bounded, np.clip(middle, -_INSIDE, _INSIDE), middle)
        covariances = self._back @ known.covariances @ self._back
        most = np.where(bounded, 1 - middle**2, np.inf)
        variances = np.where(signs, most, np.clip(np.diag(covariances), _APART, most))
        limits = _TOGETHER * np.sqrt(np.outer(variances, variances))
        covariances = np.clip(covariances, -limits, limits)
        np.fill_diagonal(covariances, variances)
        row = np.concatenate([np.ones(1), middle])
        found = np.outer(row, row)
        found[1:, 1:] += covariances
        return found


def frame(moments: Array) -> Array:
    """Return the (d, d) that makes theta of a reward at the mean context and slopes by standard deviation.

    moments (d, d): second moments of rows.
    """
    middle = moments[0, 1:]
    deviations = np.sqrt(np.maximum(np.diag(moments)[1:] - middle**2, _APART))
    found = np.diag(np.concatenate([np.ones(1), 1 / deviations]))
    found[0, 1:] = -middle / deviations
    return found


def _shrunk_means(moments: Array, precision: Array) -> tuple[Array, float]:
    """Return means by their precisions, and their variance that is left."""
    least, spread = _MEANS
    if precision.any():
        spread = max(least, float((np.square(moments / precision) - 1 / precision).mean()))
    variances = 1 / (precision + 1 / spread)
    return moments * variances, float(variances.mean())


def _spread_of(raw: Array, precision: Array) -> float:
    """Return how much covariances differ from 0 beyond what noise, or chance, makes."""
    least, most = _PAIRS
    if not (raw.size and precision.any()):
        return most
    noise = float((1 / precision).mean())
    return min(most, max(least, float(np.square(raw).mean()) - _CHANCE * noise))
