"""Posteriors of features' terms, each feature for itself, whose prior says that most features do nothing.

A feature has to be seen to do something before it decides for anybody. What features explain for each other is no
matter: residuals are measured from what was known of all of them, so that the next reports say what is too much.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_server.algorithms.additive.kernels import kernels_of

Array = NDArray[np.float64]
_SPIKE: Final = 0.7
"""Probability before any report that a feature does nothing."""
_SCALES: Final = np.array([0.015, 0.03, 0.06, 0.12, 0.25])
_LENGTHS: Final = (0.25, 1.5)
_LEFT: Final = 1e-3
"""Share of variance that is left of what a feature's terms have in common."""
_LEVELS: Final = 0.05
"""Standard deviation of what all of an arm's residuals have in common, as its level is not known exactly."""


@dataclass(frozen=True)
class SpikedTerms:
    """What is known of one feature's terms."""

    means: Array  # shape (arms, cells): without what an arm's cells have in common
    covariances: Array  # shape (arms, cells, cells)
    active: float  # how probable it is that the feature does something

    @classmethod
    def of(cls, feature: ShapeCells, masses: Array, information: Array, scores: Array) -> "SpikedTerms":
        """Return the average over priors, by their exact evidence over all arms.

        masses (cells,): shares of people, whose sum is 1.
        information, scores: shapes (arms, cells, cells) and (arms, cells): natural parameters of the terms and what
            they have in common.
        """
        centre = np.eye(feature.count) - masses
        shared = np.full((feature.count, feature.count), _LEVELS**2)
        kernels = [
            scale**2 * (centre @ kernel @ centre.T + _LEFT * np.eye(feature.count))
            for kernel in kernels_of(feature, _LENGTHS)
            for scale in _SCALES
        ]
        tiny = _LEFT * _SCALES[0] ** 2 * np.eye(feature.count)
        found = [
            _under(tiny + shared, information, scores),
            *(_under(one + shared, information, scores) for one in kernels),
        ]
        before = np.append(_SPIKE, np.full(len(kernels), (1 - _SPIKE) / len(kernels)))
        weights = softmax(np.log(before) + np.array([evidence for evidence, _, _ in found]))
        means = np.array([centre @ mean.T for _, mean, _ in found]).transpose(0, 2, 1)
        middle = np.tensordot(weights, means, 1)
        away = means - middle
        covariances = np.zeros_like(information)
        for weight, off, (_, _, covariance) in zip(weights, away, found, strict=True):
            covariances += weight * (centre @ covariance @ centre.T + off[:, :, None] * off[:, None, :])
        return cls(middle, covariances, float(1 - weights[0]))

    def size(self, masses: Array) -> float:
        """Return the root of the mean square of terms, known and not known, over arms and people."""
        squares = self.means**2 + np.diagonal(self.covariances, axis1=1, axis2=2)
        return float(np.sqrt(max(0.0, (squares @ masses).mean())))


def _under(prior: Array, information: Array, scores: Array) -> tuple[float, Array, Array]:
    """Return the log evidence up to a constant, means and covariances under a prior of each arm's terms."""
    root = np.linalg.cholesky(prior)
    inner = np.eye(len(prior)) + root.T @ information @ root
    factors = root @ np.linalg.inv(np.linalg.cholesky(inner)).transpose(0, 2, 1)
    covariances = factors @ factors.transpose(0, 2, 1)
    means = np.einsum("kij,kj->ki", covariances, scores)
    evidence = (np.einsum("ki,ki->", means, scores) - np.linalg.slogdet(inner)[1].sum()) / 2
    return float(evidence), means, covariances


def all_features(cells: Cells, masses: Array, information: Array, scores: Array) -> list[SpikedTerms]:
    """Return what is known of every feature, whose cells are apart in ``information`` (arms, terms, terms)."""
    found = []
    for place, feature in enumerate(cells.features):
        own = cells.of_feature(place)
        found.append(SpikedTerms.of(feature, masses[own], information[:, own, own], scores[:, own]))
    return found
