"""What is known of the mean rewards of arms, from sums that say something of one arm each."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_COMMON: Final = 0.5
_OWN: Final = 0.15
"""Standard deviations of what all arms have in common, and of each beside it, before any report."""
_DRAWS: Final = 1024


@dataclass(frozen=True)
class LevelEvidence:
    """Normal evidence of levels in natural parameters, (arms,) each; arms are apart."""

    information: Array
    scores: Array

    @classmethod
    def unknown(cls, arms: int) -> "LevelEvidence":
        """Return what is known before any report."""
        return cls(np.zeros(arms), np.zeros(arms))

    def learned(self, slopes: Array, sums: Array, variances: Array) -> "LevelEvidence":
        """Return what is known after ``sums`` of means slopes * level and these variances, (arms,) each."""
        weighed = slopes / variances
        return LevelEvidence(self.information + weighed * slopes, self.scores + weighed * sums)

    def faded(self, left: float) -> "LevelEvidence":
        """Return the evidence of which so much is left."""
        return LevelEvidence(left * self.information, left * self.scores)

    def with_arms(self, added: int) -> "LevelEvidence":
        """Return the evidence with more arms, of which nothing is known."""
        more = np.zeros(added)
        return LevelEvidence(np.append(self.information, more), np.append(self.scores, more))

    def law(self, middle: float) -> tuple[Array, Array]:
        """Return mean (arms,) and covariance (arms, arms); ``middle`` is the mean before any report."""
        prior = np.full((len(self.scores), len(self.scores)), _COMMON**2) + _OWN**2 * np.eye(len(self.scores))
        precision = np.linalg.inv(prior)
        covariance = np.linalg.inv(precision + np.diag(self.information))
        return covariance @ (self.scores + precision @ np.full(len(self.scores), middle)), covariance

    def doubt(self, middle: float, playable: NDArray[np.bool_]) -> float:
        """Return how much the arm of the largest mean loses against the best one, as far as is known."""
        mean, covariance = self.law(middle)
        drawn = np.random.default_rng(0).standard_normal((_DRAWS, len(mean)))
        levels = np.where(playable, mean + drawn @ np.linalg.cholesky(covariance).T, -np.inf)
        leader = int(np.where(playable, mean, -np.inf).argmax())
        return float((levels.max(axis=1) - levels[:, leader]).mean())
