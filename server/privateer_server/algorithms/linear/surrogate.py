"""People drawn with the second moments that are known of contexts: what they would tell costs nothing."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privateer_core.algorithms.linear.design_matrix import DesignMatrix
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.reports import directions, weights

Array = NDArray[np.float64]
PEOPLE: Final = 1 << 15
_LEAST: Final = 1e-3
"""The least second moment in any direction, and share of answers, that is believed."""


@dataclass(frozen=True)
class Slopes:
    """What a round's sums say of parameters, in expectation.

    Attributes
    ----------
    matrices
        Shape (classes, arms, d, d): the mean vector of a class in an arm's block, by the arm's parameter theta less the
        mean that the policy has.
    offsets
        Shape (classes, arms, d): that mean vector if the policy's means are true, since residuals are clipped.
    spreads
        Shape (classes, arms, d, d): by how people's rewards differ from what is expected, the covariance of a person's
        vector in the block.
    """

    matrices: Array
    offsets: Array
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


def slopes(policy: LinearPolicy, moments: Array, count: int = PEOPLE) -> Slopes:
    """Return the slopes of a policy, over so many people with these second moments and coins of all classes.

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
    told = weights(means)[:, None] * directions(rows @ policy.whitening)
    tilted, missed = link.slopes(means)[:, None] * rows, link.truths(products) - means
    classes, count = policy.classes, len(policy.means)
    d = rows.shape[1]
    matrices, offsets = np.zeros((classes, count, d, d)), np.zeros((classes, count, d))
    spreads, differ = np.zeros((classes, count, d, d)), told * (means * (1 - means))[:, None]
    for one in range(classes):
        of_class = max(1, int((own == one).sum()))
        for arm in range(count):
            those = np.flatnonzero((own == one) & (arms == arm))
            matrices[one, arm] = told[those].T @ tilted[those] / of_class
            offsets[one, arm] = missed[those] @ told[those] / of_class
            spreads[one, arm] = told[those].T @ differ[those] / of_class
    return Slopes(matrices, offsets, spreads)
