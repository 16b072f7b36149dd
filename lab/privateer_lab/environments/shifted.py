"""Contexts pushed away from the middle: the covariate shift of paper 1's auxiliary data."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import hyp2f1

from privateer_lab.environments.density import Density

Array = NDArray[np.float64]


class ShiftedDensity(Density):
    """Density c ||x - 1/2||_inf^gamma, c = 2^gamma (d + gamma)/d: fewer people in the middle (paper 1, Section 4.1)."""

    # The distance from the middle, r in [0, 1/2], has the distribution function (2r)^(d + gamma). The authors' sampler
    # takes (2r)^(d (gamma + 1)), which at two features is the distribution of twice their gamma.

    name: Literal["shifted"] = "shifted"
    gamma: float = Field(ge=0, le=100, allow_inf_nan=False)

    def sample(self, people: int, features: int, rng: np.random.Generator) -> Array:
        """Draw a face of the cube, a point of the face, and the distance; shape (n, d)."""
        places = rng.uniform(-1.0, 1.0, (people, features))
        faces = rng.integers(0, features, people)
        places[np.arange(people), faces] = rng.choice([-1.0, 1.0], people)
        distance = rng.random((people, 1)) ** (1 / (features + self.gamma))
        return np.asarray((1 + places * distance) / 2)

    def masses(self, low: Array, high: Array) -> Array:
        """Return exact probabilities, shape (boxes,)."""
        # Let V(r) be the volume of what a box has within r of the middle: its mass is c times the integral of
        # r^gamma dV(r). V is a product of lengths that grow with slopes 0, 1 or 2 between the distances of the box's
        # faces, so in each stretch it is a polynomial in r - start without negative coefficients: nothing cancels.
        boxes, features = low.shape
        left, right = low - 0.5, high - 0.5
        stops = np.sort(np.concatenate([np.zeros((boxes, 1)), np.abs(left), np.abs(right)], axis=1), axis=1)
        total = np.zeros(boxes)
        for start, stop in zip(stops.T[:-1], stops.T[1:], strict=True):
            total += self._stretch(left, right, start[:, None], stop[:, None])
        return np.asarray(2.0**self.gamma * (features + self.gamma) / features * total)

    def _stretch(self, left: Array, right: Array, start: Array, stop: Array) -> Array:
        """Return the integral of r^gamma dV(r) between two distances, (boxes, 1) each; result (boxes,)."""
        lengths, slopes = np.zeros_like(left), np.zeros_like(left)
        for side in ((left, right), (-right, -left)):
            near, far = (np.maximum(face, 0.0) for face in side)
            lengths += np.clip(start - near, 0.0, far - near)
            slopes += (near <= start) & (far >= stop)
        boxes, features = left.shape
        volume = np.zeros((boxes, features + 1))
        volume[:, 0] = 1.0
        for length, slope in zip(lengths.T, slopes.T, strict=True):
            volume[:, 1:] = volume[:, 1:] * length[:, None] + volume[:, :-1] * slope[:, None]
            volume[:, 0] *= length
        powers = np.arange(1, features + 1)
        return np.asarray((powers * volume[:, 1:] * self._moments(start, stop, powers - 1)).sum(axis=1))

    def _moments(self, start: Array, stop: Array, powers: NDArray[np.int64]) -> Array:
        """Return the integrals of r^gamma (r - start)^i from start to stop, (boxes, powers)."""
        width = stop - start
        with np.errstate(invalid="ignore"):
            inner = np.where(stop > 0, width / stop, 0.0)
        series = hyp2f1(-self.gamma, 1.0, powers + 2.0, inner)
        return np.asarray(width ** (powers + 1) * stop**self.gamma / (powers + 1) * series)

    def weights(self, points: Array) -> Array:
        """Return the density up to its factor c 2^-gamma, shape (m,)."""
        return np.asarray(np.abs(points - 0.5).max(axis=1) ** self.gamma)
