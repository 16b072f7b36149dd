"""Paper 4's ConSE and DP-ConSE as published, in distribution: for comparison, since DP-ConSE costs thrice its epsilon.

It exists in the lab only, and no spec can name it. Faults are kept: the replacement of a person moves two counts and
up to three noisy numbers of which each takes a whole epsilon; lengths of the two halves are the privacy of the first
alone. Where the text leaves something open: the first epoch ends after one person (R_0 is undefined), and of two arms
left the control is played.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WIDTHS: Final[tuple[Literal["algorithm", "appendix"], ...]] = ("algorithm", "appendix")
"""Where c_e stands: with a factor of 2 in the algorithm, without in the proof."""


@dataclass(frozen=True)
class ConSE:
    """Successive elimination in bins, then coins in wider bins, for one covariate (d = 1, beta = 1).

    Attributes
    ----------
    people
        n, of which the first half eliminates.
    alpha
        0 to 1/3.
    epsilon
        Nominal; None: ConSE, without privacy.
    width
        ``algorithm`` or ``appendix``.
    """

    people: int
    alpha: float
    epsilon: float | None = None
    width: Literal["algorithm", "appendix"] = "algorithm"

    @property
    def bins(self) -> int:
        """M."""
        return int(self.people ** (1 / 3) + 1e-9)

    @property
    def wide_bins(self) -> int:
        """M'."""
        return int(self.people ** ((1 - self.alpha) / 3) + 1e-9)

    @property
    def coins(self) -> int:
        """T*: people of each wide bin who flip coins in the second half."""
        return int(self.people ** (2 / 3 * (1 - self.alpha)) + 1e-9)

    def length(self, epoch: int) -> float:
        """R_e: people of an epoch."""
        if epoch == 0:
            return 1.0
        step = 2.0**-epoch
        sampling = 32 * np.log(16 * self.people * epoch**2) / step**2
        private = 8 * np.log(8 * self.people * epoch**2) / step
        return float(max(sampling, private / (self.epsilon or 1.0)) + 1)

    def margin(self, epoch: int) -> float:
        """2 h_e + 2 c_e: how far apart means must be."""
        length = self.length(epoch)
        sampling = np.sqrt(np.log(16 * self.people * epoch**2) / (2 * length))
        factor = 2 if self.width == "algorithm" else 1
        private = factor * np.log(8 * self.people * epoch**2) / (length * self.epsilon) if self.epsilon else 0.0
        return float(2 * sampling + 2 * private)

    def eliminate(self, people: int, means: Array, rng: np.random.Generator) -> tuple[int, int | None]:
        """Return after how many of a bin's people one arm is left, and which; None if both are after all of them."""
        used, epoch = 0, 0
        while True:
            length = self.randomized(self.length(epoch), rng) if epoch else 1
            if used + length > people:
                return people, None
            used += length
            if epoch:
                observed = self._means(length, means, rng)
                if abs(observed[1] - observed[0]) > self.margin(epoch):
                    return used, int(observed[1] > observed[0])
            epoch += 1

    def estimate(self, people: int, means: Array, rng: np.random.Generator) -> tuple[int, float]:
        """Return how many people of a wide bin flip coins, and the effect that is published of it."""
        length = self.randomized(self.coins, rng)
        used = min(people, length)
        treated = rng.binomial(used, 0.5)
        won = rng.binomial([used - treated, treated], means)
        return used, self.published(won, np.array([used - treated, treated]), length, rng)

    def published(
        self, won: NDArray[np.int64], played: NDArray[np.int64], length: int, rng: np.random.Generator
    ) -> float:
        """Return the difference of means, with noise of scale 2/(epsilon T_j)."""
        rates = won / np.maximum(played, 1)
        noise = rng.laplace(0, 2 / (self.epsilon * max(length, 1))) if self.epsilon else 0.0
        return float(rates[1] - rates[0] + noise)

    def randomized(self, length: float, rng: np.random.Generator) -> int:
        """Lap+: add discrete Laplace noise of scale 2/epsilon, not below 0."""
        whole = int(length)
        if self.epsilon is None:
            return whole
        while True:
            one, other = rng.geometric(-np.expm1(-self.epsilon / 2), 2)
            if (found := int(whole + one - other)) >= 0:
                return found

    def _means(self, length: int, means: Array, rng: np.random.Generator) -> Array:
        """Means of the arms of so many people, with noise of scale 2/(epsilon R_e) each."""
        treated = rng.binomial(length, 0.5)
        played = np.array([length - treated, treated])
        found = rng.binomial(played, means) / np.maximum(played, 1)
        noise = rng.laplace(0, 2 / (self.epsilon * max(length, 1)), 2) if self.epsilon else 0.0
        return np.asarray(found + noise)
