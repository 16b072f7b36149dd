"""Contexts that many people share."""

import numpy as np
from numpy.typing import NDArray

from privateer_lab.environments.quadrature import net


class Atoms:
    """A share of people at a few points, in equal parts, and the others uniform.

    Parameters
    ----------
    share, points, seed
        Of the people at points; how many points; and where they are, uniform on the cube.
    features
        Number of features.
    """

    def __init__(self, share: float, points: int, seed: int, features: int) -> None:
        self.share = share
        self.places = np.random.default_rng([seed, 5]).random((points, features))

    def sample(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Shape (n, d)."""
        contexts = rng.random((people, self.places.shape[1]))
        shared = np.flatnonzero(rng.random(people) < self.share)
        contexts[shared] = self.places[rng.integers(0, len(self.places), len(shared))]
        return contexts

    def masses(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Volumes and points inside, shape (boxes,)."""
        inside = np.array([self._inside(a, b).mean() for a, b in zip(low, high, strict=True)])
        return np.asarray((1 - self.share) * np.prod(high - low, axis=1) + self.share * inside)

    def points(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Even for the uniform part, and the points inside."""
        places = self.places[self._inside(low, high)]
        points = net(low, high)
        even = np.full(len(points), (1 - self.share) * float(np.prod(high - low)) / len(points))
        here = np.full(len(places), self.share / len(self.places))
        return np.concatenate([points, places]), np.concatenate([even, here])

    def _inside(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.bool_]:
        below = (self.places < high) | (high == 1.0)
        return np.asarray(((self.places >= low) & below).all(axis=1))
