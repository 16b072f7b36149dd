"""Sequences of paper 4 as published: epoch lengths, margins between means, and their noise; and the world of Figure 1.

Faults are kept, and the noise is not enough: a replaced participant changes the lengths of epochs and the means of two
segments, and each of them uses its own epsilon. Where the text is incomplete, the first epoch ends after one
participant (R_0 is undefined), and the control is played while both arms are left.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_core.arrays import Array, Bools, Ints

Width = Literal["algorithm", "appendix"]
"""The source of c_e: the algorithm, with a factor of 2, or the proof, without it."""


@dataclass(frozen=True)
class ConSE:
    """Sequences of ConSE and DP-ConSE for Lipschitz effects (beta = 1)."""

    people: int  # n, of which the first half eliminates
    alpha: float  # 0 to 1 / (2 + d)
    epsilon: float | None = None  # nominal; None: ConSE, without privacy
    width: Width = "algorithm"  # ``algorithm`` or ``appendix``
    dimension: int = 1  # d, the number of covariates

    @property
    def n_side(self) -> int:
        """The number of bins along each covariate: there are M = n_side^d, the paper's n^(d / (2 + d))."""
        return int(self.people ** (1 / (2 + self.dimension)) + 1e-9)

    @property
    def wide_side(self) -> int:
        """The number of wide bins along each covariate: there are M' = wide_side^d."""
        return int(self.people ** ((1 - self.alpha) / (2 + self.dimension)) + 1e-9)

    @property
    def bins(self) -> int:
        """The number of bins, the paper's M."""
        return int(self.n_side**self.dimension)

    @property
    def wide_bins(self) -> int:
        """The number of wide bins, the paper's M'."""
        return int(self.wide_side**self.dimension)

    @property
    def coins(self) -> int:
        """The people, T*, of each wide bin who flip coins in the second half."""
        return int(self.people ** (2 / (2 + self.dimension) * (1 - self.alpha)) + 1e-9)

    def epoch_length(self, epoch: int) -> float:
        """Return R_e, the number of participants of an epoch."""
        if epoch == 0:
            return 1.0
        step = 2.0**-epoch
        sampling_size = 32 * np.log(16 * self.people * epoch**2) / step**2
        privacy_size = 8 * np.log(8 * self.people * epoch**2) / step
        return float(max(sampling_size, privacy_size / (self.epsilon or 1.0)) + 1)

    def elimination_margin(self, epoch: int) -> float:
        """Return 2 h_e + 2 c_e, the least difference of means that eliminates an arm."""
        length = self.epoch_length(epoch)
        sampling_width = np.sqrt(np.log(16 * self.people * epoch**2) / (2 * length))
        factor = 2 if self.width == "algorithm" else 1
        privacy_width = factor * np.log(8 * self.people * epoch**2) / (length * self.epsilon) if self.epsilon else 0.0
        return float(2 * sampling_width + 2 * privacy_width)

    def randomize_length(self, length: float, rng: np.random.Generator) -> int:
        """Apply Lap+: add discrete Laplace noise of scale 2/epsilon to a length, not below 0."""
        whole_length = int(length)
        if self.epsilon is None:
            return whole_length
        while True:
            increase, decrease = rng.geometric(-np.expm1(-self.epsilon / 2), 2)
            if (noisy_length := int(whole_length + increase - decrease)) >= 0:
                return noisy_length

    def mean_difference(self, won: Array, played: Array, length: float, rng: np.random.Generator) -> float:
        """Return an epoch's treated mean less the control's, with noise of scale 2/(epsilon length) on each."""
        rates = won / np.maximum(played, 1) + self._noise(length, 2, rng)
        return float(rates[1] - rates[0])

    def effect(self, won: Array, played: Array, length: float, rng: np.random.Generator) -> float:
        """Return the published difference of means, with a single noise of scale 2/(epsilon T_j)."""
        rates = won / np.maximum(played, 1)
        return float(rates[1] - rates[0] + self._noise(length, 1, rng)[0])

    def _noise(self, length: float, count: int, rng: np.random.Generator) -> Array:
        if self.epsilon is None:
            return np.zeros(count)
        return rng.laplace(0, 2 / (self.epsilon * max(length, 1)), count)


EFFECT_AMPLITUDE: Final = 0.3
"""The effect is .3 sin(2 pi x), at x uniform in [0, 1]; with two covariates both sines are multiplied."""
CONTROL_MEAN: Final = 0.5
"""Mean reward of the control; rewards are 0 or 1."""
_N_POINTS_PER_AXIS: Final = (4096, 512)
"""Number of points an axis at which a curve is compared with the effect, by dimension."""


@dataclass(frozen=True)
class World:
    """Participants with one or two covariates, in equal cells: ``n_side`` bins an axis, cells in C order."""

    dimension: int = 1  # 1 or 2
    # What is added to x. At 0 the effect changes its sign where bins of even numbers end, which helps them.
    phase: float = 0.0

    @property
    def uniform(self) -> float:
        """Regret a person of flipping a coin: half the mean of |effect|."""
        return float(EFFECT_AMPLITUDE * (2 / np.pi) ** self.dimension / 2)

    def means(self, n_side: int) -> Array:
        """Return mean rewards of control and treatment, shape (cells, 2)."""
        edges = np.cos(2 * np.pi * np.arange(n_side + 1) / n_side + 2 * np.pi * self.phase)
        effect = self._product(n_side / (2 * np.pi) * (edges[:-1] - edges[1:]))
        return np.stack([np.full(effect.size, CONTROL_MEAN), CONTROL_MEAN + effect], axis=1)

    def losses(self, n_side: int) -> Array:
        """Return mean losses in each cell with control and with treatment, shape (cells, 2)."""
        effect = self._effects_at_points(n_side)
        return np.stack([np.maximum(effect, 0).mean(axis=1), np.maximum(-effect, 0).mean(axis=1)], axis=1)

    def root_mean_square_error(self, curve: Array) -> float:
        """Return the root mean square, over people, of the difference between a curve of equal steps and the effect."""
        return float(np.sqrt(np.square(curve[:, None] - self._effects_at_points(self.side_from_cells(curve))).mean()))

    def max_loss(self, treated: Bools) -> float:
        """Return the largest loss of a participant if a mask of cells is treated, and all other cells are not."""
        effect = self._effects_at_points(self.side_from_cells(treated))
        return float(np.where(treated[:, None], -effect, effect).max(initial=0.0))

    def side_from_cells(self, cells: NDArray[np.generic]) -> int:
        """Return the number of bins an axis of an array with a value for each cell."""
        return round(float(len(cells) ** (1 / self.dimension)))

    def wide_bin_indices(self, n_side: int, wide: int) -> Ints:
        """Return the index of the wide bin with the middle of each cell, shape (cells,), for ``wide`` bins an axis."""
        indices = (np.arange(n_side) * wide + wide // 2) // n_side if n_side >= wide else np.arange(n_side)
        if self.dimension == 1:
            return np.asarray(indices)
        return np.asarray((indices[:, None] * wide + indices).ravel())

    def _effects_at_points(self, n_side: int) -> Array:
        """Return the effect at points of each cell, shape (cells, points)."""
        n_points = _N_POINTS_PER_AXIS[self.dimension - 1] // n_side
        positions = (np.arange(n_side * n_points) + 0.5) / (n_side * n_points) + self.phase
        wave = np.sin(2 * np.pi * positions).reshape(n_side, n_points)
        if self.dimension == 1:
            return np.asarray(EFFECT_AMPLITUDE * wave)
        return np.asarray(EFFECT_AMPLITUDE * np.einsum("ia,jb->ijab", wave, wave).reshape(n_side * n_side, -1))

    def _product(self, wave: Array) -> Array:
        return EFFECT_AMPLITUDE * (wave if self.dimension == 1 else np.outer(wave, wave).ravel())
