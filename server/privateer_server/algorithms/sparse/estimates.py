"""What a noisy block says of coefficients."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]
CONFIDENCE: Final = 0.95
"""All intervals of a result hold together, and no feature is kept that does not matter, with this probability."""
UNIFORM: Final = 1 / 3
"""Second moment of a feature that is uniform within its bounds."""
_LEAST: Final = 1e-3
"""The least that people's rewards are taken to vary by, in squared half ranges."""
_SHRUNK: Final = 2.0
"""An estimate of so many standard deviations and less counts as none."""


@dataclass(frozen=True)
class Estimates:
    """Coefficients of the coordinates of a block: of arms, then of features.

    Attributes
    ----------
    values, deviations
        Shape (p,), with the standard deviations that noise and people's own variation give them.
    """

    values: Array
    deviations: Array

    @property
    def ratios(self) -> Array:
        """How many standard deviations coefficients are from 0, (p,)."""
        return np.asarray(np.abs(self.values) / self.deviations)

    @property
    def shrunk(self) -> Array:
        """Coefficients to decide by, (p,): those that noise may have made are smaller, or 0 (James and Stein)."""
        return np.asarray(self.values * np.maximum(0.0, 1 - (_SHRUNK / np.maximum(self.ratios, 1e-9)) ** 2))


def estimates(people: int, moments: Array, variances: Array) -> Estimates:
    """Return the coefficients of a linear model of the value by the other coordinates.

    Eigenvalues of the noisy matrix below what noise alone has are raised to that: sqrt(2 p) standard deviations of an
    entry off the diagonal, for a symmetric matrix of normal entries.

    Parameters
    ----------
    people
        Number of people.
    moments, variances
        Shape (p + 1, p + 1): sums of products of coordinates, the value last, and the variances of noise in them.
    """
    size = len(moments) - 1
    matrix, products = moments[:-1, :-1], moments[:-1, -1]
    noise = float(np.median(variances[:-1, :-1][~np.eye(size, dtype=bool)])) if size > 1 else variances[0, 0]
    found, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(found, 1 + np.sqrt(2 * size * noise))) @ vectors.T
    values = inverse @ products
    # Twice the noise of the sum of squares, so that it is hardly ever taken for too small.
    unexplained = moments[-1, -1] + 2 * np.sqrt(variances[-1, -1]) - values @ products
    own = min(1.0, max(_LEAST, float(unexplained) / people))
    spread = np.diag(variances[:-1, -1] + variances[:-1, :-1] @ values**2) + own * np.maximum(matrix, 0) * np.eye(size)
    covariance = inverse @ (spread + own * (matrix - np.diag(np.diag(matrix)))) @ inverse
    return Estimates(values, np.sqrt(np.maximum(np.diag(covariance), 1e-12)))


def threshold(features: int, chance: float = 1 - CONFIDENCE) -> float:
    """Return the standard deviations beyond which one of so many numbers is by chance with this probability at most."""
    return -float(ndtri(chance / (2 * features)))
