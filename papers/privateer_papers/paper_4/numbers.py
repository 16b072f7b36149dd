"""Sequences of paper 4 as published: the people of an epoch, how far apart means must be, and the noise on both.

Faults are kept, and the noise is not enough: a replaced person changes the lengths of epochs and the means of two
segments, and each of them takes a part of epsilon of its own. Where the text leaves something open, the first epoch
ends after one person (R_0 is undefined), and of two arms left the control is played.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Width = Literal["algorithm", "appendix"]
"""Where c_e stands: with a factor of 2 in the algorithm, without in the proof."""


@dataclass(frozen=True)
class ConSE:
    """Sequences of ConSE and DP-ConSE for Lipschitz effects (beta = 1)."""

    people: int  # n, of which the first half eliminates
    alpha: float  # 0 to 1 / (2 + d)
    epsilon: float | None = None  # nominal; None: ConSE, without privacy
    width: Width = "algorithm"  # ``algorithm`` or ``appendix``
    dimension: int = 1  # d, the number of covariates

    @property
    def side(self) -> int:
        """The number of bins along each covariate: there are M = side^d, the paper's n^(d / (2 + d))."""
        return int(self.people ** (1 / (2 + self.dimension)) + 1e-9)

    @property
    def wide_side(self) -> int:
        """The number of wide bins along each covariate: there are M' = wide_side^d."""
        return int(self.people ** ((1 - self.alpha) / (2 + self.dimension)) + 1e-9)

    @property
    def bins(self) -> int:
        """The number of bins, the paper's M."""
        return int(self.side**self.dimension)

    @property
    def wide_bins(self) -> int:
        """The number of wide bins, the paper's M'."""
        return int(self.wide_side**self.dimension)

    @property
    def coins(self) -> int:
        """The people, T*, of each wide bin who flip coins in the second half."""
        return int(self.people ** (2 / (2 + self.dimension) * (1 - self.alpha)) + 1e-9)

    def length(self, epoch: int) -> float:
        """Return R_e, the people of an epoch."""
        if epoch == 0:
            return 1.0
        step = 2.0**-epoch
        sampling = 32 * np.log(16 * self.people * epoch**2) / step**2
        private = 8 * np.log(8 * self.people * epoch**2) / step
        return float(max(sampling, private / (self.epsilon or 1.0)) + 1)

    def margin(self, epoch: int) -> float:
        """Return 2 h_e + 2 c_e, how far apart means must be."""
        length = self.length(epoch)
        sampling = np.sqrt(np.log(16 * self.people * epoch**2) / (2 * length))
        factor = 2 if self.width == "algorithm" else 1
        private = factor * np.log(8 * self.people * epoch**2) / (length * self.epsilon) if self.epsilon else 0.0
        return float(2 * sampling + 2 * private)

    def randomized(self, length: float, rng: np.random.Generator) -> int:
        """Apply Lap+: add discrete Laplace noise of scale 2/epsilon to a length, not below 0."""
        whole = int(length)
        if self.epsilon is None:
            return whole
        while True:
            one, other = rng.geometric(-np.expm1(-self.epsilon / 2), 2)
            if (found := int(whole + one - other)) >= 0:
                return found

    def apart(self, won: Array, played: Array, length: float, rng: np.random.Generator) -> float:
        """Return an epoch's treated mean less the control's, with noise of scale 2/(epsilon length) on each."""
        rates = won / np.maximum(played, 1) + self._noise(length, 2, rng)
        return float(rates[1] - rates[0])

    def effect(self, won: Array, played: Array, length: float, rng: np.random.Generator) -> float:
        """Return the difference of means that is published, with one noise of scale 2/(epsilon T_j)."""
        rates = won / np.maximum(played, 1)
        return float(rates[1] - rates[0] + self._noise(length, 1, rng)[0])

    def _noise(self, length: float, count: int, rng: np.random.Generator) -> Array:
        if self.epsilon is None:
            return np.zeros(count)
        return rng.laplace(0, 2 / (self.epsilon * max(length, 1)), count)
