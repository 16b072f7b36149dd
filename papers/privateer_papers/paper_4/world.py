"""The people of paper 4's experiments here: an effect that is a sine of one covariate, or a product of sines of two."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HEIGHT: Final = 0.3
"""The effect on people is .3 sin(2 pi x), at x uniform in [0, 1]; of two covariates both sines are multiplied."""
BASE: Final = 0.5
"""What people earn from the control; rewards are 0 or 1."""
_FINE: Final = (4096, 512)
"""Points an axis at which a curve is compared with the effect, by dimension."""


@dataclass(frozen=True)
class World:
    """People with so many covariates, in equal cells: ``side`` bins an axis, cells in C order."""

    dimension: int = 1  # 1 or 2
    # What is added to x. At 0 the effect changes its sign where bins of even numbers end, which helps them.
    phase: float = 0.0

    @property
    def uniform(self) -> float:
        """Regret a person of flipping a coin: half the mean of |effect|."""
        return float(HEIGHT * (2 / np.pi) ** self.dimension / 2)

    def means(self, side: int) -> Array:
        """Return mean rewards of control and treatment, shape (cells, 2)."""
        edges = np.cos(2 * np.pi * np.arange(side + 1) / side + 2 * np.pi * self.phase)
        effect = self._product(side / (2 * np.pi) * (edges[:-1] - edges[1:]))
        return np.stack([np.full(effect.size, BASE), BASE + effect], axis=1)

    def losses(self, side: int) -> Array:
        """Return what a person of each cell loses on average with control and with treatment, shape (cells, 2)."""
        effect = self._effects(side)
        return np.stack([np.maximum(effect, 0).mean(axis=1), np.maximum(-effect, 0).mean(axis=1)], axis=1)

    def error_of(self, curve: Array) -> float:
        """Return the root mean square, over people, of the difference between a curve of equal steps and the effect."""
        return float(np.sqrt(np.square(curve[:, None] - self._effects(self.side_of(curve))).mean()))

    def worst(self, treated: NDArray[np.bool_]) -> float:
        """Return the most that anybody loses if the people of these cells are treated, and those of the others not."""
        effect = self._effects(self.side_of(treated))
        return float(np.where(treated[:, None], -effect, effect).max(initial=0.0))

    def side_of(self, cells: NDArray[np.generic]) -> int:
        """Return the bins an axis of something with a value for each cell."""
        return round(float(len(cells) ** (1 / self.dimension)))

    def within(self, side: int, wide: int) -> NDArray[np.int64]:
        """Return which of ``wide`` bins an axis the middle of each cell is in, shape (cells,)."""
        place = (np.arange(side) * wide + wide // 2) // side if side >= wide else np.arange(side)
        if self.dimension == 1:
            return np.asarray(place)
        return np.asarray((place[:, None] * wide + place).ravel())

    def _effects(self, side: int) -> Array:
        """Return the effect at points of each cell, shape (cells, points)."""
        each = _FINE[self.dimension - 1] // side
        at = (np.arange(side * each) + 0.5) / (side * each) + self.phase
        wave = np.sin(2 * np.pi * at).reshape(side, each)
        if self.dimension == 1:
            return np.asarray(HEIGHT * wave)
        return np.asarray(HEIGHT * np.einsum("ia,jb->ijab", wave, wave).reshape(side * side, -1))

    def _product(self, wave: Array) -> Array:
        return HEIGHT * (wave if self.dimension == 1 else np.outer(wave, wave).ravel())
