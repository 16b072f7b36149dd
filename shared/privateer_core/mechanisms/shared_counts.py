"""Counts of votes that two servers add up in shares, each with noise of its own. No trust model uses them yet."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Final, Self

import msgspec
import numpy as np

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event, Gaussian, Pure
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import EPSILON_MAX, RoundedNormal, sampling_cost
from privateer_core.sampling.randomness import NoiseSource
from privateer_core.vdaf.circuits import Circuit, blocks
from privateer_core.vdaf.field import FIELD_128

STEPS: Final = 1 << 16
"""Steps of a vote in noisy sums, so that noise is drawn on a grid much finer than its standard deviation."""
CELLS_MAX: Final = 1 << 20
"""Largest number of cells of a vote."""
SAMPLING_COST: Final = sampling_cost(CELLS_MAX)
"""Delta that the sampler of one server's normal noise adds to a release."""


class SharedCounts(msgspec.Struct, frozen=True, dict=True):
    """Votes by cell, for votes that name a cell in each of several blocks; noise of two servers, of one scale.

    Parameters
    ----------
    lengths
        Number of cells of each block.
    standard_deviation
        Standard deviation of a server's normal noise, in votes; 0: the noise is not normal.
    scale
        Scale of a server's discrete Laplace noise, in votes, for promises of delta 0; 0: the noise is not Laplace. One
        of both is above 0.

    Raises
    ------
    SpecError
        If a vote has more cells than the calibration allows, or there is no such noise.

    Notes
    -----
    Privacy cost: that of one server's noise, since the other knows its own. A changed vote takes 1 from a cell of a
    block, and adds 1 to another cell: with b blocks an L2 sensitivity of sqrt(2 b), and an L1 sensitivity of 2 b.
    Readers see both noises, which are independent: normal noise has sqrt(2) times the standard deviation of a
    curator's. Counts by cell are a finer release than a curator's sums and hits, of the same normal noise.
    """

    lengths: tuple[int, ...]
    standard_deviation: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        has_one_noise = (self.standard_deviation > 0) != (self.scale > 0)
        if not (has_one_noise and 0 <= self.standard_deviation < 1e6 and 0 <= self.scale < 1e6):
            detail = "must be from 0 to below 1e6, as scale must, and one of the two must be 0"
            raise SpecError(detail, field="standard_deviation", remedy="calibrate it to the spec's promise")
        if not self.lengths or min(self.lengths) < 1 or sum(self.lengths) > CELLS_MAX:
            detail = f"must have one number or more, each at least 1, with a sum of at most {CELLS_MAX}"
            raise SpecError(detail, field="lengths", remedy="count fewer cells")

    @classmethod
    def calibrated(
        cls, lengths: tuple[int, ...], epsilon: float, delta: float, allotment: Allotment | None = None
    ) -> Self:
        """Return the mechanism that keeps a promise against each server: Laplace noise if delta is 0, else normal.

        With an ``allotment``, the budget of one of several reports of a participant, each report keeps that.
        """
        if not 0 < epsilon <= EPSILON_MAX:
            detail = f"must be above 0, and at most {EPSILON_MAX:g}"
            raise SpecError(detail, field="epsilon", remedy="choose another epsilon")
        distance = 2 * len(lengths)
        if delta == 0:
            report_epsilon = Fraction(allotment.pure if allotment else epsilon)
            return cls(lengths, scale=math.ceil(distance * STEPS / report_epsilon) / STEPS)
        if allotment:
            return cls(lengths, math.sqrt(distance) * allotment.standard_deviation)
        return cls(lengths, published_standard_deviation(epsilon, delta - SAMPLING_COST, math.sqrt(distance)))

    @property
    def release_event(self) -> Event:
        """Event of a release for a server, which knows its own noise; it holds for readers, too."""
        distance = 2 * len(self.lengths)
        if self.scale:
            return Pure(distance * STEPS / self._laplace.scale)
        return Gaussian(self.standard_deviation, math.sqrt(distance))

    @property
    def sampling(self) -> float:
        """Upper bound of the delta that the sampler of noise adds."""
        return SAMPLING_COST if self.standard_deviation else 0.0

    @property
    def variance(self) -> float:
        """Variance of the released number of a cell: that of both noises."""
        if self.scale:
            return 2 * self._laplace.variance / STEPS**2
        return 2 * self.standard_deviation**2

    @property
    def n_cells(self) -> int:
        """Number of cells of all blocks."""
        return sum(self.lengths)

    @cached_property
    def circuit(self) -> Circuit:
        """The validity circuit of a vote."""
        return blocks(self.lengths)

    @cached_property
    def starts(self) -> Ints:
        """The first cell of each block, among all cells."""
        return np.cumsum([0, *self.lengths[:-1]], dtype=np.int64)

    def encode_vote(self, cells: Sequence[int]) -> list[int]:
        """Encode a vote, a cell in each block, as the circuit's bits."""
        bits = [0] * self.n_cells
        for start, length, cell in zip(self.starts.tolist(), self.lengths, cells, strict=True):
            if not 0 <= cell < length:
                raise ValueError("a vote names a cell of each block")
            bits[start + cell] = 1
        return bits

    def add_noise(self, share: Sequence[int], noise: NoiseSource) -> list[int]:
        """Return a server's share of the release: its share of the counts, and all of its own noise.

        A server draws it once: two draws for the same counts spend the promise twice.
        """
        steps = self._sampler.draw(self.n_cells, noise).tolist()
        return [(number * STEPS + step) % FIELD_128.modulus for number, step in zip(share, steps, strict=True)]

    def release(self, shares: Sequence[Sequence[int]]) -> Array:
        """Return the noisy number of votes of each cell, by both servers' shares of the release."""
        modulus = FIELD_128.modulus
        sums = (sum(numbers) % modulus for numbers in zip(*shares, strict=True))
        return np.array([(number - modulus if 2 * number > modulus else number) / STEPS for number in sums])

    def simulate(self, votes: Ints, rng: "np.random.Generator") -> Array:
        """Draw the release of n votes, (n, blocks), with the distribution of sharing, adding up and both noises."""
        counts = np.bincount((votes + self.starts).ravel(), minlength=self.n_cells)
        return (STEPS * counts + self._simulate_noise(rng) + self._simulate_noise(rng)) / STEPS

    def _simulate_noise(self, rng: "np.random.Generator") -> Ints:
        """Draw one server's noise, in steps."""
        if self.scale:
            return self._laplace.simulate(self.n_cells, rng)
        return np.rint(rng.normal(0.0, self.standard_deviation * STEPS, self.n_cells)).astype(np.int64)

    @property
    def _sampler(self) -> RoundedNormal | DiscreteLaplace:
        return self._laplace if self.scale else self._normal

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation * STEPS)

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.from_min_scale(self.scale * STEPS)
