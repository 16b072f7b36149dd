"""How far apart a person's two points are: near ones cost little, and far ones measure more than their noise."""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from privateer_core.algorithms.convex.spec import ConvexSpec

Array = NDArray[np.float64]
_CLEAR: Final = 2.0
"""From this many deviations by the Lipschitz constant on, points farther apart tell hardly more."""
_END: Final = 0.75
"""The distance at the horizon, by the one that would be best for all people alike: earlier ones are longer."""
_FIRST: Final = 1000
"""People of whom the first are taken to be this far into the experiment."""
_TRIED: Final = 400
_NEAREST: Final = 1e-6
"""The shortest distance tried, by the longest."""


@dataclass(frozen=True)
class PairDistance:
    """Distances of two points from their centre, by what people measure wrongly at each of them.

    Noise at the two points is independent, so that a near pair measures it and no slope: devices clip slopes to the
    Lipschitz constant, and what is left of a small slope goes to 0 with the distance (`kept`).

    With noise at both points regret grows as T^(3/4), and not as sqrt(T), which is for points whose noise is one and
    the same (Agarwal, Dekel and Xiao 2010; Shamir 2013; Duchi et al. 2015).
    """

    # lipschitz, deviation: G, to which devices clip slopes, and s, the standard deviation of what is measured at one
    # point
    lipschitz: float
    deviation: float
    # strong_convexity, smoothness: mu and beta of the losses; 0: none is known
    strong_convexity: float
    smoothness: float
    # radius, reach: of the set: the distance from its middle to its nearest edge, and R, to its farthest point
    radius: float
    reach: float
    horizon: int  # T, the people of the experiment

    @classmethod
    def of(cls, spec: ConvexSpec) -> Self:
        """Return the distances for a spec's set, losses and people."""
        rule, domain = spec.algorithm, spec.domain
        return cls(
            lipschitz=rule.slope,
            deviation=rule.deviation,
            strong_convexity=rule.strong_convexity,
            smoothness=rule.smoothness,
            radius=domain.radius,
            reach=domain.reach,
            horizon=spec.experiment.horizon,
        )

    def kept(self, distance: float) -> float:
        """Return a(rho) = erf(G rho / s), what clipping leaves of a small slope at a distance rho; 1 without noise.

        The slope between both points is off by normal noise of variance s^2 / (2 rho^2), and is cut to G at both ends.
        """
        return float(self._kept(np.array(distance)))

    def after(self, learned: int, square: float) -> float:
        """Return rho after so many people: it falls as their fourth root, and is at most half the set's radius.

        learned: people from whom the centre has learned.
        square: V: the mean square of a person's estimated gradient, where nothing is measured wrongly.
        """
        nearest = self.radius * math.log(max(3, self.horizon)) / self.horizon
        if not self.deviation:
            return min(self.radius / 2, nearest)
        ahead = math.sqrt(math.sqrt(self.horizon / max(_FIRST, learned)))
        far = min(self._longest, _END * self._constant(square) * ahead)
        return min(self.radius / 2, max(nearest, far))

    @property
    def _longest(self) -> float:
        return _CLEAR * self.deviation / self.lipschitz

    def _constant(self, square: float) -> float:
        """Return the one distance for all people at which noise and the distance itself cost the least together.

        Noise costs R sqrt(V T) / a, or V ln T / (2 mu a^2) where losses are strongly convex; points off the centre
        cost G rho each, or beta rho^2 / 2 where losses are smooth.
        """
        tried = self._longest * np.geomspace(_NEAREST, 1.0, _TRIED)
        variances, people, mu = square / self._kept(tried) ** 2, self.horizon, self.strong_convexity
        noise = variances * math.log(max(3, people)) / (2 * mu) if mu else self.reach * np.sqrt(variances * people)
        away = self.lipschitz * tried
        if self.smoothness:
            away = np.minimum(away, self.smoothness * tried**2 / 2)
        return float(tried[np.argmin(noise + away * people)])

    def _kept(self, distances: Array) -> Array:
        if not self.deviation:
            return np.ones_like(distances)
        return np.asarray(erf(self.lipschitz * distances / self.deviation))
