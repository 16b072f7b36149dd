"""Contexts uniform on the unit cube."""

import numpy as np
from numpy.typing import NDArray

from privateer_lab.environments.quadrature import net


class Uniform:
    """A `privateer_lab.environments.density.Density`."""

    def __init__(self, features: int) -> None:
        self.features = features

    def sample(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Shape (n, d)."""
        return rng.random((people, self.features))

    def masses(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Volumes, shape (boxes,)."""
        return np.asarray(np.prod(high - low, axis=1))

    def points(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Even."""
        points = net(low, high)
        return points, np.ones(len(points))
