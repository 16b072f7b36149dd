"""Contexts denser in some cells of a grid than in others."""

import numpy as np
from numpy.typing import NDArray

from privateer_lab.environments.quadrature import net


class Varied:
    """A constant density in every cell of a grid; logarithms of the densities are evenly spaced.

    Parameters
    ----------
    ratio, side
        Of the highest density to the lowest; cells along a feature.
    seed
        Decides which cell has which density.
    features
        Number of features.
    """

    def __init__(self, ratio: float, side: int, seed: int, features: int) -> None:
        self.side, self.features = side, features
        levels = np.random.default_rng([seed, 6]).permutation(ratio ** np.linspace(0.0, 1.0, side**features))
        self._chances = levels / levels.sum()

    def sample(self, people: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Shape (n, d)."""
        cells = rng.choice(len(self._chances), people, p=self._chances)
        corners = np.stack(np.unravel_index(cells, [self.side] * self.features), axis=1)
        return np.asarray((corners + rng.random((people, self.features))) / self.side)

    def masses(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over cells of chance times the part of the cell inside, shape (boxes,)."""
        edges = np.arange(self.side + 1) / self.side
        upper, lower = np.minimum(high[..., None], edges[1:]), np.maximum(low[..., None], edges[:-1])
        parts = np.clip(upper - lower, 0.0, None) * self.side
        total = np.broadcast_to(self._chances, (len(low), len(self._chances)))
        for j in range(self.features):
            total = np.einsum("bcr,bc->br", total.reshape(len(low), self.side, -1), parts[:, j])
        return np.asarray(total[:, 0])

    def points(
        self, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weighted by the density."""
        points = net(low, high)
        cells = np.ravel_multi_index(tuple((points * self.side).astype(np.int64).T), [self.side] * self.features)
        return points, self._chances[cells]
