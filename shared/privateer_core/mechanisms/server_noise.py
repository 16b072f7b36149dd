"""Noise of each of two servers in its share of a sum of votes, so that neither learns the sum itself."""

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
from privateer_core.arrays import Ints
from privateer_core.errors import BatchRefused, SpecError
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import EPSILON_MAX, RoundedNormal, sampling_cost
from privateer_core.sampling.randomness import NoiseSource

STEPS: Final = 255 * 256
"""Steps of a vote in noisy sums: a multiple of the units into which votes are divided, and much finer than noise."""
CELLS_MAX: Final = 1 << 20
"""Largest number of cells of a vote."""
SAMPLING_COST: Final = sampling_cost(CELLS_MAX)
"""Delta that the sampler of one server's normal noise adds to a release."""
DISTANCE: Final = 2
"""L1 change of all cells when a vote is replaced: 1 leaves cells, and 1 comes to others. In L2: sqrt(2) at most."""


class ServerNoise(msgspec.Struct, frozen=True, dict=True):
    """Noise of a server in each cell of a vote; two servers have independent noise of the same scale.

    Parameters
    ----------
    standard_deviation
        Standard deviation of normal noise, in votes; 0: the noise is not normal.
    scale
        Scale of discrete Laplace noise, in votes; 0: the noise is not Laplace. One of both is above 0.

    Raises
    ------
    SpecError
        If there is no such noise.

    Notes
    -----
    Privacy cost: that of one server's noise, since the other knows its own. Readers of a release see both noises.
    """

    standard_deviation: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        has_one_noise = (self.standard_deviation > 0) != (self.scale > 0)
        if not (has_one_noise and 0 <= self.standard_deviation < 1e6 and 0 <= self.scale < 1e6):
            detail = "must be from 0 to below 1e6, as a standard deviation must, and one of the two must be 0"
            raise SpecError(detail, field="scale", remedy="calibrate it to the spec's promise")

    @classmethod
    def pure(cls, epsilon: float) -> Self:
        """Return the Laplace noise by which a release is epsilon-private for each server."""
        return cls(scale=math.ceil(DISTANCE * STEPS / Fraction(epsilon)) / STEPS)

    @classmethod
    def calibrated(cls, epsilon: float, delta: float, allotment: Allotment | None = None) -> Self:
        """Return the noise that keeps a promise for each server: Laplace noise if delta is 0, else normal noise.

        With an ``allotment``, the budget of one of several reports of a participant, each report keeps that.
        """
        if not 0 < epsilon <= EPSILON_MAX:
            detail = f"must be above 0, and at most {EPSILON_MAX:g}"
            raise SpecError(detail, field="epsilon", remedy="choose another epsilon")
        if delta == 0:
            return cls.pure(allotment.pure if allotment else epsilon)
        if allotment:
            return cls(math.sqrt(DISTANCE) * allotment.standard_deviation)
        return cls(published_standard_deviation(epsilon, delta - SAMPLING_COST, math.sqrt(DISTANCE)))

    @property
    def event(self) -> Event:
        """Event of a vote for a server, which knows its own noise; it holds for readers, too."""
        if self.scale:
            # One division of whole numbers, so that no rounding is above the promise.
            return Pure(DISTANCE * STEPS / self._laplace.scale)
        return Gaussian(self.standard_deviation, math.sqrt(DISTANCE))

    @property
    def sampling(self) -> float:
        """Upper bound of the delta that the sampler adds."""
        return SAMPLING_COST if self.standard_deviation else 0.0

    @property
    def variance(self) -> float:
        """Variance of the released number of votes of a cell: that of both noises."""
        return 2 * (self._laplace.variance / STEPS**2 if self.scale else self.standard_deviation**2)

    def draw(self, count: int, noise: NoiseSource) -> Ints:
        """Draw one server's noise of ``count`` cells, in steps."""
        return (self._laplace if self.scale else self._normal).draw(count, noise)

    def simulate(self, count: int, rng: "np.random.Generator") -> Ints:
        """Draw the sum of both servers' noises from a seeded generator, in steps."""
        if self.scale:
            return self._laplace.simulate(count, rng) + self._laplace.simulate(count, rng)
        noises = np.rint(rng.normal(0.0, self.standard_deviation * STEPS, (2, count))).astype(np.int64)
        return np.asarray(noises.sum(axis=0))

    def add_to_share(self, share: Sequence[int], unit: int, noise: NoiseSource) -> list[int]:
        """Return a server's share of a release: its share of the cells, in units of a vote, and all of its own noise.

        A server draws it once: two draws for the same cells spend the promise twice.
        """
        from privateer_core.vdaf.field import FIELD_128  # devices of other trust models need not load it

        step, steps = STEPS // unit, self.draw(len(share), noise).tolist()
        return [(number * step + addend) % FIELD_128.modulus for number, addend in zip(share, steps, strict=True)]

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation * STEPS)

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.from_min_scale(self.scale * STEPS)


def join_shares(shares: Sequence[Sequence[int]]) -> Ints:
    """Return the noisy cells, in steps, by both servers' shares of a release.

    Raises
    ------
    BatchRefused
        If a cell has more than 63 bits, as one of shares that a dishonest server made up.
    """
    from privateer_core.vdaf.field import FIELD_128

    modulus = FIELD_128.modulus
    sums = (sum(numbers) % modulus for numbers in zip(*shares, strict=True))
    cells = [number - modulus if 2 * number > modulus else number for number in sums]
    if max(map(abs, cells), default=0) >= 1 << 63:
        raise BatchRefused("shares of a release do not add up to counts of votes")
    return np.array(cells, np.int64)
