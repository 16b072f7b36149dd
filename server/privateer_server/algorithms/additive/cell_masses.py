"""The shares of people in each cell, learned feature by feature from noisy counts."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_server.algorithms.additive.kernels import kernels_of

Array = NDArray[np.float64]
_MISSING: Final = 0.1
"""Assumed share of people without a number, where there may be some."""
_SCALES: Final = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
"""Standard deviations tried for shares, by the even one."""
_LEFT: Final = 1e-6
_LEAST: Final = 2e-3
"""The least share that is believed, by the even one."""
_KEPT: Final = 512
"""Features whose priors are kept: those of several experiments."""


@dataclass(frozen=True)
class CellMasses:
    """Normal evidence of the shares of people by cell, in natural parameters."""

    information: Array  # shape (terms, terms); 0 between cells of different features
    scores: Array  # shape (terms,)

    @classmethod
    def unknown(cls, cells: Cells) -> "CellMasses":
        """Return what is known before any report."""
        return cls(np.zeros((cells.count, cells.count)), np.zeros(cells.count))

    def learned(
        self, questions: Questions, before: Array, counts: Array, variances: Array, people: int
    ) -> "CellMasses":
        """Return what is known after counts (parts,) of so many people, with noise of these variances (parts,).

        ``before`` (terms,) are the shares that were known.
        """
        matrix = questions.matrix * (np.arange(questions.cells.count) > 0)
        expected = people * np.clip(matrix @ before, 1e-6, 1.0)
        weighed = matrix.T / (variances + expected)
        more = people**2 * weighed @ matrix
        return CellMasses(self.information + more, self.scores + people * weighed @ counts)

    def means(self, cells: Cells) -> Array:
        """Return the shares (terms,), which are above 0 and have the sum 1 for each feature; the first is 1."""
        found = np.ones(cells.count)
        for place, feature in enumerate(cells.features):
            own = cells.of_feature(place)
            found[own] = _shares(feature, self.information[own, own], self.scores[own])
        return found


def _shares(feature: ShapeCells, information: Array, scores: Array) -> Array:
    """Return the mean of one feature's shares over priors of several scales and lengths, by their evidence.

    Notes
    -----
    With R a root of a prior at scale 1, and U and d the vectors and values of R^T J R, the mean at scale s is
    s^2 R U (1 + s^2 d)^-1 U^T R^T h: one decomposition tells of all scales.
    """
    even, roots = _prior(feature)
    surplus, squares = scores - information @ even, _SCALES[:, None] ** 2
    values, vectors = np.linalg.eigh(roots.transpose(0, 2, 1) @ information @ roots)
    rotated = roots @ vectors
    told, inner = surplus @ rotated, 1 + squares * np.maximum(values, 0.0)[:, None]
    moved = squares * told[:, None] / inner
    evidence = (moved @ told[:, :, None])[:, :, 0] - np.log(inner).sum(axis=2)
    likely = softmax(evidence / 2)
    found = (likely[:, None] @ moved @ rotated.transpose(0, 2, 1)).sum(axis=(0, 1))
    shares = np.maximum(even + found, _LEAST * even)
    return np.asarray(shares / shares.sum())


@lru_cache(_KEPT)
def _prior(feature: ShapeCells) -> tuple[Array, Array]:
    """Return shares (cells,) before any report, and roots (lengths, cells, cells) of covariances at scale 1."""
    even = np.full(feature.count, 1 / feature.count)
    if feature.missing:
        even = np.append(np.full(feature.bins, (1 - _MISSING) / feature.bins), _MISSING)
    centre = np.eye(feature.count) - even[:, None]
    kernels = centre @ (even[:, None] * kernels_of(feature) * even) @ centre.T
    return even, np.linalg.cholesky(kernels + _LEFT * np.diag(even**2))
