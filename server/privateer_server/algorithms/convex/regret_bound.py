"""A bound on the reward that people lost against the best point: by concavity, with a confidence limit."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from privateer_core.algorithms.convex.spec import Domain

Array = NDArray[np.float64]
CONFIDENCE: Final = 0.95
_TRIED: Final = 60


@dataclass(frozen=True)
class GradientSums:
    """Sums over rounds r of people n_r at a centre x_r, with an estimated gradient g_r and strong convexity mu."""

    rounds: int  # how many there were
    pull: Array  # shape (d,): n_r (g_r + mu x_r)
    centres: Array  # shape (d,): n_r x_r
    level: float  # n_r (<g_r, x_r> + mu |x_r|^2 / 2)
    products: Array  # shape (d + 1, d + 1): n_r^2 times the outer product of (g_r, <g_r, x_r>) with itself

    @classmethod
    def none(cls, dimension: int) -> "GradientSums":
        """Return the sums over no rounds."""
        nothing = np.zeros(dimension)
        return cls(0, nothing, nothing, 0.0, np.zeros((dimension + 1, dimension + 1)))

    def with_round(self, people: int, centre: Array, gradient: Array, mu: float) -> "GradientSums":
        """Return the sums with one more round."""
        along = float(gradient @ centre)
        scaled = people * np.append(gradient, along)
        return GradientSums(
            self.rounds + 1,
            self.pull + people * (gradient + mu * centre),
            self.centres + people * centre,
            self.level + people * (along + mu * float(centre @ centre) / 2),
            self.products + np.outer(scaled, scaled),
        )

    def shortfall(self, domain: Domain, mu: float, people: int) -> tuple[float, float]:
        """Return the mean reward that the centres lost against the best point as estimated, and its upper end.

        A concave reward f is at a point x at most f(x_r) + <f'(x_r), x - x_r> - mu |x - x_r|^2 / 2, so the loss is at
        most the largest mean of that over the set. The best point does not depend on the releases: for it, errors of
        the estimates are differences of a martingale, whose squares were seen. The end is theirs by Student's t, for at
        least two rounds; the loss at the mean of the centres is no larger, by concavity.
        """
        curved, times = mu * people, float(stdtrit(self.rounds - 1, CONFIDENCE))
        best = domain.projected(self.pull / curved) if curved else domain.farthest(self.pull)
        most = float(self.pull @ best) - curved * float(best @ best) / 2 - self.level
        widest = float(np.linalg.eigvalsh(self.products[:-1, :-1])[-1])
        high = most + times * (domain.reach * math.sqrt(widest) + math.sqrt(self.products[-1, -1]))
        if curved and widest:
            high = min(high, self._nearby(curved, times, widest))
        high = max(0.0, high) / people
        return min(max(0.0, most / people), high), high

    def _nearby(self, curved: float, times: float, widest: float) -> float:
        """Return the upper end where points far from the centres are out of the question.

        For any s, times sqrt(Q) is at most times (Q / s + s) / 2, with Q the squares at a point; then the largest value
        over all points is that of a quadratic function. The least of these ends, over s, is one, too.
        """
        values, vectors = np.linalg.eigh(self.products[:-1, :-1])
        ends = []
        for s in times * widest / curved * np.geomspace(1.5, 1e4, _TRIED):
            slopes = vectors.T @ (self.pull - times / s * self.products[:-1, -1])
            top = float((slopes**2 / (curved - times / s * values)).sum()) / 2
            ends.append(top - self.level + times * (self.products[-1, -1] / s + s) / 2)
        return float(min(ends))
