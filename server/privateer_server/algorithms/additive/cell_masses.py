"""The shares of people in each cell, learned feature by feature from noisy counts."""

from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class CellMasses:
    """Normal evidence of the shares of people by cell, in natural parameters.

    Attributes
    ----------
    information
        Shape (terms, terms); 0 between cells of different features.
    scores
        Shape (terms,).
    """

    information: Array
    scores: Array

    @classmethod
    def unknown(cls, cells: Cells) -> "CellMasses":
        """Return what is known before any report."""
        return cls(np.zeros((cells.count, cells.count)), np.zeros(cells.count))

    def learned(self, questions: Questions, counts: Array, variances: Array, people: int) -> "CellMasses":
        """Return what is known after counts (parts,) of so many people, with noise of these variances (parts,)."""
        matrix = questions.matrix * (np.arange(questions.cells.count) > 0)
        expected = people * np.clip(matrix @ self.means(questions.cells), 1e-6, 1.0)
        weighed = matrix.T / (variances + expected)
        more = people**2 * weighed @ matrix
        return CellMasses(self.information + more, self.scores + people * weighed @ counts)

    def means(self, cells: Cells) -> Array:
        """Return the shares (terms,), which are above 0 and have the sum 1 for each feature; the first is 1."""
        # A round asks for the same several times.
        if cells not in self._found:
            found = np.ones(cells.count)
            for place, feature in enumerate(cells.features):
                own = cells.of_feature(place)
                found[own] = _shares(feature, self.information[own, own], self.scores[own])
            self._found[cells] = found
        return self._found[cells].copy()

    @cached_property
    def _found(self) -> dict[Cells, Array]:
        return {}


def _shares(feature: ShapeCells, information: Array, scores: Array) -> Array:
    """Return the mean of one feature's shares over priors of several scales and lengths, by their evidence."""
    even = np.full(feature.count, 1 / feature.count)
    if feature.missing:
        even = np.append(np.full(feature.bins, (1 - _MISSING) / feature.bins), _MISSING)
    surplus = scores - information @ even
    centre = np.eye(feature.count) - even[:, None]
    found, evidence = [], []
    for kernel in kernels_of(feature):
        prior = centre @ (even[:, None] * kernel * even) @ centre.T + _LEFT * np.diag(even**2)
        for scale in _SCALES:
            root = scale * np.linalg.cholesky(prior)
            inner, told = np.eye(len(root)) + root.T @ information @ root, root.T @ surplus
            moved = np.linalg.solve(inner, told)
            found.append(root @ moved)
            evidence.append((told @ moved - np.linalg.slogdet(inner)[1]) / 2)
    shares = np.maximum(even + softmax(evidence) @ np.array(found), _LEAST * even)
    return np.asarray(shares / shares.sum())
