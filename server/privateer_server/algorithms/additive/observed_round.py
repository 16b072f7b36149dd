"""What a round's releases say of terms: sums of residuals by part, and how they follow from terms."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_server.algorithms.additive.arm_shares import ArmShares

Array = NDArray[np.float64]
_EXACT: Final = 1e-3
"""Variance of a sum that has no noise, in people: a little, so that sums that follow from others do no harm."""


@dataclass(frozen=True)
class ObservedRound:
    """A round's sums of residuals.

    Attributes
    ----------
    people
        People of the round.
    sums
        Shape (arms, parts): sums over all people, as estimated.
    variances
        Shape (arms, parts): of noise in them; infinite where nobody was asked.
    means
        Shape (arms, terms): the terms that residuals were measured from.
    arms
        Who got which arm.
    together
        Whether all sums are over the same people, so that they vary together.
    counts
        Shape (arms, terms): people by arm and cell, where they are known exactly; else empty.
    """

    people: int
    sums: Array
    variances: Array
    means: Array
    arms: ArmShares
    together: bool
    counts: Array

    def statistics(self, questions: Questions, masses: Array) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of the terms."""
        parts = [self._of_arm(arm, questions, masses) for arm in range(len(self.sums))]
        information, scores = (np.array(some) for some in zip(*parts, strict=True))
        return information, scores

    def _of_arm(self, arm: int, questions: Questions, masses: Array) -> tuple[Array, Array]:
        slopes = self.slopes(arm, questions.cells, masses)
        deviations = np.sqrt(np.maximum(self.variances[arm], _EXACT))
        matrix, sums = questions.matrix / deviations[:, None], self.sums[arm] / deviations
        if self.together:
            information, scores = _together(slopes, matrix, sums, float(self.arms.spread[arm]))
        else:
            rows = matrix @ slopes
            information, scores = rows.T @ rows, rows.T @ sums
        return information, scores + information @ self.means[arm]

    def slopes(self, arm: int, cells: Cells, masses: Array) -> Array:
        """Return by how much sums by cell (terms,) change with the arm's terms, (terms, terms).

        Features are taken as independent given the arm: what that leaves out later rounds measure again.
        """
        if self.counts.size:
            weights = self.arms.weighted[arm] / np.maximum(self.arms.shares[arm], 1e-9)
            weighted = self.counts[arm] * weights
        else:
            weighted = self.people * masses * self.arms.weighted[arm]
        return independent(cells, weighted)


def independent(cells: Cells, weighted: Array) -> Array:
    """Return the sums (terms, terms) of products of two terms, by weighted people (terms,) of one arm."""
    whole, scaled = max(float(weighted[0]), 1e-9), weighted.copy()
    for place in range(len(cells.features)):
        own = cells.of_feature(place)
        scaled[own] *= whole / max(float(scaled[own].sum()), 1e-9)
    found = np.outer(scaled, scaled) / whole
    for place in range(len(cells.features)):
        own = cells.of_feature(place)
        found[own, own] = np.diag(scaled[own])
    return found


def _together(slopes: Array, matrix: Array, sums: Array, spread: float) -> tuple[Array, Array]:
    """Return M^T S^-1 M and M^T S^-1 sums with M = matrix slopes and S = spread matrix slopes matrix^T + 1.

    With slopes = R R^T all is in terms of G = R^T matrix^T matrix R, as small as there are terms.
    """
    values, vectors = np.linalg.eigh(slopes)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rows = matrix @ root
    gram = rows.T @ rows
    inner = np.linalg.solve(spread * gram + np.eye(len(gram)), np.column_stack([gram, rows.T @ sums]))
    return root @ inner[:, :-1] @ root.T, root @ inner[:, -1]
