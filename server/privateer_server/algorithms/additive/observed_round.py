"""What a round's releases say of terms: sums of residuals by part, and how they follow from terms."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_server.algorithms.additive.arm_shares import ArmShares
from privateer_server.algorithms.additive.feature_blocks import IndependentFeatures

Array = NDArray[np.float64]
_EXACT: Final = 1e-3
"""Variance of a sum that has no noise, in people: a little, so that sums that follow from others do no harm."""
_KEPT: Final = 64
"""Experiments whose terms are kept by feature."""


@dataclass(frozen=True)
class ObservedRound:
    """A round's sums of residuals."""

    people: int  # people of the round
    sums: Array  # shape (arms, parts): sums over all people, as estimated
    variances: Array  # shape (arms, parts): of noise in them; infinite where nobody was asked
    means: Array  # shape (arms, terms): the terms that residuals were measured from
    arms: ArmShares  # who got which arm
    together: bool  # whether all sums are over the same people, so that they vary together
    counts: Array  # shape (arms, terms): people by arm and cell, where they are known exactly; else empty

    def statistics(self, questions: Questions, masses: Array) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of the terms."""
        people = IndependentFeatures.of(questions, self._weighted(masses))
        precisions = 1 / np.maximum(self.variances, _EXACT)
        # Sums over the same people vary together.
        spread = self.arms.spread if self.together else np.zeros(len(self.sums))
        information, scores = people.told(questions, precisions, self.sums, spread)
        return information, scores + np.einsum("kij,kj->ki", information, self.means)

    def _weighted(self, masses: Array) -> Array:
        """Return how many people each arm has by cell, (arms, terms), by what their residuals are multiplied by.

        Features are taken as independent given the arm: what that leaves out later rounds measure again.
        """
        if self.counts.size:
            return self.counts * self.arms.weighted / np.maximum(self.arms.shares, 1e-9)
        return self.people * masses * self.arms.weighted


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
