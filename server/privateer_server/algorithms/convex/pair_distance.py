"""The distance between a participant's two points, and bounds on regret from sums of gradients."""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.special import erf, stdtrit

from privateer_core.algorithms.convex.spec import ConvexSpec, Domain
from privateer_core.arrays import Array

CONFIDENCE: Final = 0.95
_N_TRIED_BOUNDS: Final = 60


@dataclass(frozen=True)
class GradientSums:
    """Sums over rounds r of people n_r at a centre x_r, with an estimated gradient g_r and strong convexity mu."""

    rounds: int  # how many there were
    pull: Array  # shape (d,): n_r (g_r + mu x_r)
    centres: Array  # shape (d,): n_r x_r
    level: float  # n_r (<g_r, x_r> + mu |x_r|^2 / 2)
    products: Array  # shape (d + 1, d + 1): n_r^2 times the outer product of (g_r, <g_r, x_r>) with itself

    @classmethod
    def empty(cls, dimension: int) -> "GradientSums":
        """Return the sums over no rounds."""
        zeros = np.zeros(dimension)
        return cls(0, zeros, zeros, 0.0, np.zeros((dimension + 1, dimension + 1)))

    def with_round(self, n_participants: int, centre: Array, gradient: Array, mu: float) -> "GradientSums":
        """Return the sums with one more round."""
        slope = float(gradient @ centre)
        scaled = n_participants * np.append(gradient, slope)
        return GradientSums(
            self.rounds + 1,
            self.pull + n_participants * (gradient + mu * centre),
            self.centres + n_participants * centre,
            self.level + n_participants * (slope + mu * float(centre @ centre) / 2),
            self.products + np.outer(scaled, scaled),
        )

    def estimate_shortfall(self, domain: Domain, mu: float, n_participants: int) -> tuple[float, float]:
        """Return the estimated mean reward that the centres lost against the best point, and its upper limit.

        A concave reward f is at a point x at most f(x_r) + <f'(x_r), x - x_r> - mu |x - x_r|^2 / 2, so the loss is at
        most the largest mean of that over the set. The best point does not depend on the releases: for it, errors of
        the estimates are differences of a martingale, whose squares were seen. The end is theirs by Student's t, for at
        least two rounds; the loss at the mean of the centres is no larger, by concavity.
        """
        curvature, t_quantile = mu * n_participants, float(stdtrit(self.rounds - 1, CONFIDENCE))
        best = domain.project(self.pull / curvature) if curvature else domain.farthest_point(self.pull)
        max_loss = float(self.pull @ best) - curvature * float(best @ best) / 2 - self.level
        max_eigenvalue = float(np.linalg.eigvalsh(self.products[:-1, :-1])[-1])
        upper = max_loss + t_quantile * (domain.max_norm * math.sqrt(max_eigenvalue) + math.sqrt(self.products[-1, -1]))
        if curvature and max_eigenvalue:
            upper = min(upper, self._local_upper_end(curvature, t_quantile, max_eigenvalue))
        upper = max(0.0, upper) / n_participants
        return min(max(0.0, max_loss / n_participants), upper), upper

    def _local_upper_end(self, curvature: float, t_quantile: float, max_eigenvalue: float) -> float:
        """Return an upper confidence limit that excludes points far from the centres.

        For any s, times sqrt(Q) is at most times (Q / s + s) / 2, with Q the squares at a point; then the largest value
        over all points is that of a quadratic function. The least of these ends, over s, is one, too.
        """
        values, vectors = np.linalg.eigh(self.products[:-1, :-1])
        ends = []
        for s in t_quantile * max_eigenvalue / curvature * np.geomspace(1.5, 1e4, _N_TRIED_BOUNDS):
            slopes = vectors.T @ (self.pull - t_quantile / s * self.products[:-1, -1])
            maximum = float((slopes**2 / (curvature - t_quantile / s * values)).sum()) / 2
            ends.append(maximum - self.level + t_quantile * (self.products[-1, -1] / s + s) / 2)
        return float(min(ends))


_MAX_DISTANCE_DEVIATIONS: Final = 2.0
"""From this many deviations by the Lipschitz constant on, points farther apart tell hardly more."""
_HORIZON_DISTANCE_FACTOR: Final = 0.75
"""The distance at the horizon, by the one that would be best for all people alike: earlier ones are longer."""
_MIN_PEOPLE_LEARNED: Final = 1000  # people of whom the first are taken to be this far into the experiment
_N_TRIED_DISTANCES: Final = 400
_MIN_DISTANCE_RATIO: Final = 1e-6  # the shortest distance tried, by the longest


@dataclass(frozen=True)
class PairDistance:
    """The distance of two points from their centre, given the measurement error at each of them.

    Noise at the two points is independent, so that a near pair measures it and no slope: devices clip slopes to the
    Lipschitz constant, and what is left of a small slope goes to 0 with the distance (`kept`).

    With noise at both points regret grows as T^(3/4), and not as sqrt(T), which is for points whose noise is one and
    the same (Agarwal, Dekel and Xiao 2010; Shamir 2013; Duchi et al. 2015).
    """

    # lipschitz, deviation: G, to which devices clip slopes, and s, the standard deviation of what is measured at one
    # point
    lipschitz: float
    standard_deviation: float
    # strong_convexity, smoothness: mu and beta of the losses; 0: none is known
    strong_convexity: float
    smoothness: float
    # radius, reach: of the set: the distance from its middle to its nearest edge, and R, to its farthest point
    radius: float
    max_norm: float
    horizon: int  # T, the people of the experiment

    @classmethod
    def from_spec(cls, spec: ConvexSpec) -> Self:
        """Return the distances for a spec's set, losses and horizon."""
        rule, domain = spec.algorithm, spec.domain
        return cls(
            lipschitz=rule.slope,
            standard_deviation=rule.standard_deviation,
            strong_convexity=rule.strong_convexity,
            smoothness=rule.smoothness,
            radius=domain.radius,
            max_norm=domain.max_norm,
            horizon=spec.experiment.horizon,
        )

    def attenuation(self, distance: float) -> float:
        """Return a(rho) = erf(G rho / s), the factor by which clipping attenuates a small slope; 1 without noise.

        The slope between both points is off by normal noise of variance s^2 / (2 rho^2), and is cut to G at both ends.
        """
        return float(self._compute_attenuations(np.array(distance)))

    def distance_after(self, n_learned: int, mean_square: float) -> float:
        """Return rho, which falls as the fourth root of the number of reports, at most half the set's radius.

        n_learned: reports from which the centre has learned.
        mean_square: V, the mean square of a participant's estimated gradient without measurement error.
        """
        min_distance = self.radius * math.log(max(3, self.horizon)) / self.horizon
        if not self.standard_deviation:
            return min(self.radius / 2, min_distance)
        stretch = math.sqrt(math.sqrt(self.horizon / max(_MIN_PEOPLE_LEARNED, n_learned)))
        constant_distance = self._best_constant_distance(mean_square)
        distance = min(self._max_distance, _HORIZON_DISTANCE_FACTOR * constant_distance * stretch)
        return min(self.radius / 2, max(min_distance, distance))

    @property
    def _max_distance(self) -> float:
        return _MAX_DISTANCE_DEVIATIONS * self.standard_deviation / self.lipschitz

    def _best_constant_distance(self, mean_square: float) -> float:
        """Return the constant distance at which noise and bias have the least total cost.

        Noise costs R sqrt(V T) / a, or V ln T / (2 mu a^2) where losses are strongly convex; points off the centre
        cost G rho each, or beta rho^2 / 2 where losses are smooth.
        """
        distances = self._max_distance * np.geomspace(_MIN_DISTANCE_RATIO, 1.0, _N_TRIED_DISTANCES)
        squares = mean_square / self._compute_attenuations(distances) ** 2
        people, mu = self.horizon, self.strong_convexity
        noise = squares * math.log(max(3, people)) / (2 * mu) if mu else self.max_norm * np.sqrt(squares * people)
        bias = self.lipschitz * distances
        if self.smoothness:
            bias = np.minimum(bias, self.smoothness * distances**2 / 2)
        return float(distances[np.argmin(noise + bias * people)])

    def _compute_attenuations(self, distances: Array) -> Array:
        if not self.standard_deviation:
            return np.ones_like(distances)
        return np.asarray(erf(self.lipschitz * distances / self.standard_deviation))
