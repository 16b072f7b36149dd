"""Bayesian linear regression of every arm's parameter, with a prior by evidence."""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_FIRST: Final = (0.03, 0.1, 0.3)
"""Standard deviations tried for what arms differ by for everybody, in expected reward."""
_OTHERS: Final = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Those tried for the other coordinates' parameters."""


@dataclass(frozen=True)
class Posterior:
    """What is known of the arms' parameters.

    Attributes
    ----------
    means
        Shape (arms, d): how far parameters are from those of the prior, on average.
    covariances
        Shape (arms, d, d).
    prior
        Standard deviations of the first coordinate and the others before any report.
    """

    means: Array
    covariances: Array
    prior: tuple[float, float]


def posterior(information: Array, scores: Array, scale: float) -> Posterior:
    """Return the posterior under the prior of the largest evidence.

    Parameters
    ----------
    information
        Shape (arms, d, d): the sum of M^T M / s^2 over observations M theta + noise of variance s^2.
    scores
        Shape (arms, d): the sum of M^T observation / s^2, of parameters less the prior's means.
    scale
        Parameter by expected reward.
    """
    tried = [_under(information, scores, (scale * first, scale * others)) for first, others in product(_FIRST, _OTHERS)]
    return max(tried, key=lambda one: one[0])[1]


def _under(information: Array, scores: Array, prior: tuple[float, float]) -> tuple[float, Posterior]:
    """Return the logarithm of the evidence of a prior, up to a constant, and the posterior under it."""
    d = scores.shape[1]
    deviations = np.full(d, prior[1])
    deviations[0] = prior[0]
    # In units of the prior, so that matrices have eigenvalues of 1 and more.
    scaled = np.eye(d) + deviations[:, None] * information * deviations
    inverse = np.linalg.inv(scaled)
    own = deviations * scores
    means = np.einsum("kij,kj->ki", inverse, own)
    evidence = float((own * means).sum() - np.linalg.slogdet(scaled)[1].sum()) / 2
    covariances = deviations[:, None] * inverse * deviations
    return evidence, Posterior(deviations * means, (covariances + covariances.transpose(0, 2, 1)) / 2, prior)
