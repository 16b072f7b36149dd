"""What a round's releases say of terms: sums of residuals by part, and how they follow from terms."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_server.algorithms.additive.arm_shares import ArmShares

Array = NDArray[np.float64]
_EXACT: Final = 1e-3
"""Variance of a sum that has no noise, in people: a little, so that sums that follow from others do no harm."""
_KEPT: Final = 64
"""Experiments whose terms are kept by feature."""


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
        slopes = np.array([self.slopes(arm, questions.cells, masses) for arm in range(len(self.sums))])
        weighed = questions.matrix.T / np.maximum(self.variances, _EXACT)[:, None]
        precision, told = weighed @ questions.matrix, np.einsum("kdp,kp->kd", weighed, self.sums)
        if self.together:
            precision, told = _together(slopes, precision, told, self.arms.spread)
        information = slopes @ precision @ slopes
        information = (information + information.transpose(0, 2, 1)) / 2
        scores = np.einsum("kij,kj->ki", slopes, told)
        return information, scores + np.einsum("kij,kj->ki", information, self.means)

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
    whole, feature = max(float(weighted[0]), 1e-9), _feature_of(cells)
    sums = np.maximum(np.bincount(feature, weighted), 1e-9)
    scaled = weighted * (whole / sums)[feature]
    scaled[0] = weighted[0]
    found = np.outer(scaled, scaled) / whole
    found[feature[:, None] == feature] = 0.0
    np.fill_diagonal(found, scaled)
    found[0, 0] = scaled[0] ** 2 / whole
    return np.asarray(found)


@lru_cache(_KEPT)
def _feature_of(cells: Cells) -> NDArray[np.int64]:
    """Return the number of each term's feature, from 1, and 0 for the term of everybody."""
    return np.repeat(np.arange(len(cells.features) + 1), np.diff(cells.starts, prepend=0))


def _together(slopes: Array, precision: Array, told: Array, spread: Array) -> tuple[Array, Array]:
    """Return M^T S^-1 M and M^T S^-1 sums with S = spread M slopes M^T + N, where the sums are over the same people.

    Parameters
    ----------
    slopes
        Shape (arms, terms, terms).
    precision, told
        M^T N^-1 M, (arms, terms, terms), and M^T N^-1 sums, (arms, terms), with N the noise.
    spread
        Shape (arms,).
    """
    sampled = np.eye(slopes.shape[1]) + spread[:, None, None] * (precision @ slopes)
    found = np.linalg.solve(sampled, np.concatenate([precision, told[:, :, None]], axis=2))
    return found[:, :, :-1], found[:, :, -1]
