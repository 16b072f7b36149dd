"""The shares of people in each cell, learned feature by feature from noisy counts."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells, Questions

Array = NDArray[np.float64]
_MISSING: Final = 0.1
"""Assumed share of people without a number, where there may be some."""
_CONCENTRATION: Final = 1.0
"""How far shares may be from even ones: as those of a Dirichlet distribution with parameters of this sum."""
_LEAST: Final = 2e-3
"""The least share that is believed, as a part of that of cells alike."""


@dataclass(frozen=True)
class CellMasses:
    """A normal posterior over the shares of people by cell, in natural parameters.

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
        """Return the posterior after counts (parts,) of so many people, with noise of these variances (parts,)."""
        matrix = questions.matrix * (np.arange(questions.cells.count) > 0)
        expected = people * np.clip(matrix @ self.means(questions.cells), 1e-6, 1.0)
        precision = 1 / (variances + expected)
        weighed = matrix.T * precision
        return CellMasses(
            self.information + people**2 * weighed @ matrix, self.scores + people * weighed @ counts
        )

    def means(self, cells: Cells) -> Array:
        """Return the shares (terms,), which are above 0 and have the sum 1 for each feature; the first is 1."""
        found = np.ones(cells.count)
        for place, feature in enumerate(cells.features):
            own = cells.of_feature(place)
            even = np.full(feature.count, 1 / feature.count)
            if feature.missing:
                even = np.append(np.full(feature.bins, (1 - _MISSING) / feature.bins), _MISSING)
            factor = (np.diag(np.sqrt(even)) - np.outer(even, np.sqrt(even))) / np.sqrt(1 + _CONCENTRATION)
            information = self.information[own, own]
            surplus = factor.T @ (self.scores[own] - information @ even)
            scaled = np.eye(feature.count) + factor.T @ information @ factor
            shares = np.maximum(even + factor @ np.linalg.solve(scaled, surplus), _LEAST * even)
            found[own] = shares / shares.sum()
        return found
