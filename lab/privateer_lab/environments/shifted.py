"""Contexts pushed away from the middle: the covariate shift of paper 1's auxiliary data."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import hyp2f1

from privateer_lab.environments.quadrature import net


class Shifted:
    """Density c ||x - 1/2||_inf^gamma on the unit cube, c = 2^gamma (d + gamma)/d (paper 1, Section 4.1).

    The distance from the middle, r in [0, 1/2], has the distribution function (2r)^(d + gamma). The authors' sampler
    takes (2r)^(d (gamma + 1)), which at two features is the law of twice their gamma.

    Parameters
    ----------
    gamma
        0 is uniform.
    features
        Number of features.
    """

    def __init__(self, gamma: float, features: int) -> None:
        self.gamma, self.features = gamma, features
        self._scale = 2.0**gamma * (features + gamma) / features

    def sample(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """A face of the cube, a point of the face, and the distance; shape (n, d)."""
        places = rng.uniform(-1.0, 1.0, (people, self.features))
        faces = rng.integers(0, self.features, people)
        places[np.arange(people), faces] = rng.choice([-1.0, 1.0], people)
        distance = rng.random((people, 1)) ** (1 / (self.features + self.gamma))
        return np.asarray((1 + places * distance) / 2)

    def masses(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Exact, shape (boxes,).

        Let V(r) be the volume of what a box has within r of the middle: a mass is c times the integral of
        r^gamma dV(r). V is a product of lengths that grow with slopes 0, 1 or 2 between the distances of the box's
        faces, so that in each stretch it is a polynomial in r - start without negative coefficients: nothing cancels.
        """
        left, right = low - 0.5, high - 0.5
        stops = np.sort(np.concatenate([np.zeros((len(low), 1)), np.abs(left), np.abs(right)], axis=1), axis=1)
        total = np.zeros(len(low))
        for start, stop in zip(stops.T[:-1], stops.T[1:], strict=True):
            total += self._stretch(left, right, start[:, None], stop[:, None])
        return np.asarray(self._scale * total)

    def _stretch(
        self,
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        start: NDArray[np.float64],
        stop: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Integral of r^gamma dV(r) between two distances, (boxes, 1) each."""
        lengths, slopes = np.zeros_like(left), np.zeros_like(left)
        for side in ((left, right), (-right, -left)):
            near, far = (np.maximum(face, 0.0) for face in side)
            lengths += np.clip(start - near, 0.0, far - near)
            slopes += (near <= start) & (far >= stop)
        volume = np.zeros((len(left), self.features + 1))
        volume[:, 0] = 1.0
        for length, slope in zip(lengths.T, slopes.T, strict=True):
            volume[:, 1:] = volume[:, 1:] * length[:, None] + volume[:, :-1] * slope[:, None]
            volume[:, 0] *= length
        powers = np.arange(1, self.features + 1)
        return np.asarray((powers * volume[:, 1:] * self._moments(start, stop, powers - 1)).sum(axis=1))

    def _moments(
        self, start: NDArray[np.float64], stop: NDArray[np.float64], powers: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Integrals of r^gamma (r - start)^i from start to stop, (boxes, powers)."""
        width = stop - start
        with np.errstate(invalid="ignore"):
            inner = np.where(stop > 0, width / stop, 0.0)
        series = hyp2f1(-self.gamma, 1.0, powers + 2.0, inner)
        return np.asarray(width ** (powers + 1) * stop**self.gamma / (powers + 1) * series)

    def points(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weighted by the density."""
        points = net(low, high)
        return points, np.abs(points - 0.5).max(axis=1) ** self.gamma
