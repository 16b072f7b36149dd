"""Shares of participants in each cell, learned feature by feature from noisy counts."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.arrays import Array
from privateer_server.algorithms.additive.posterior import build_kernels

_MISSING_SHARE: Final = 0.1  # assumed share of people without a number, where there may be some
_RELATIVE_DEVIATIONS: Final = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
"""Standard deviations tried for shares, by the even one."""
_RIDGE: Final = 1e-6
_MIN_RELATIVE_SHARE: Final = 2e-3  # the least share that is believed, by the even one
_CACHE_SIZE: Final = 512  # features whose priors are kept: those of several experiments


@dataclass(frozen=True)
class CellMasses:
    """Normal evidence of the shares of people by cell, in natural parameters."""

    information: Array  # shape (terms, terms); 0 between cells of different features
    scores: Array  # shape (terms,)

    @classmethod
    def unknown(cls, cells: Cells) -> "CellMasses":
        """Return the evidence before any report."""
        return cls(np.zeros((cells.count, cells.count)), np.zeros(cells.count))

    def add_counts(
        self, questions: Questions, cell_shares: Array, counts: Array, variances: Array, n_participants: int
    ) -> "CellMasses":
        """Return the evidence after noisy counts (parts,) of participants, with the noise ``variances`` (parts,).

        ``cell_shares`` (terms,) are the shares of cells before the counts.
        """
        matrix = questions.matrix * (np.arange(questions.cells.count) > 0)
        expected = n_participants * np.clip(matrix @ cell_shares, 1e-6, 1.0)
        weighted_matrix = matrix.T / (variances + expected)
        added_information = n_participants**2 * weighted_matrix @ matrix
        return CellMasses(self.information + added_information, self.scores + n_participants * weighted_matrix @ counts)

    def means(self, cells: Cells) -> Array:
        """Return the shares (terms,), which are above 0 and have the sum 1 for each feature; the first is 1."""
        shares = np.ones(cells.count)
        for index, feature in enumerate(cells.features):
            columns = cells.feature_slice(index)
            shares[columns] = _estimate_shares(feature, self.information[columns, columns], self.scores[columns])
        return shares


def _estimate_shares(feature: ShapeCells, information: Array, scores: Array) -> Array:
    """Return the mean of one feature's shares over priors of several scales and lengths, by their evidence.

    With R a root of a prior at scale 1, and U and d the vectors and values of R^T J R, the mean at scale s is
    s^2 R U (1 + s^2 d)^-1 U^T R^T h: one decomposition tells of all scales.
    """
    even, roots = _prior(feature)
    surplus, scale_variances = scores - information @ even, _RELATIVE_DEVIATIONS[:, None] ** 2
    values, vectors = np.linalg.eigh(roots.transpose(0, 2, 1) @ information @ roots)
    rotated = roots @ vectors
    projections, denominators = surplus @ rotated, 1 + scale_variances * np.maximum(values, 0.0)[:, None]
    shifts = scale_variances * projections[:, None] / denominators
    evidence = (shifts @ projections[:, :, None])[:, :, 0] - np.log(denominators).sum(axis=2)
    weights = softmax(evidence / 2)
    shift = (weights[:, None] @ shifts @ rotated.transpose(0, 2, 1)).sum(axis=(0, 1))
    shares = np.maximum(even + shift, _MIN_RELATIVE_SHARE * even)
    return np.asarray(shares / shares.sum())


@lru_cache(_CACHE_SIZE)
def _prior(feature: ShapeCells) -> tuple[Array, Array]:
    """Return mean shares (cells,) before any report, and roots (lengths, cells, cells) of covariances at scale 1."""
    even = np.full(feature.count, 1 / feature.count)
    if feature.missing:
        even = np.append(np.full(feature.bins, (1 - _MISSING_SHARE) / feature.bins), _MISSING_SHARE)
    centre = np.eye(feature.count) - even[:, None]
    kernels = centre @ (even[:, None] * build_kernels(feature) * even) @ centre.T
    return even, np.linalg.cholesky(kernels + _RIDGE * np.diag(even**2))
