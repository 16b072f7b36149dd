"""Vectors with normal noise: from every device, or drawn once by a curator at the release."""

import math
from functools import cached_property
from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, check_range, whole
from privateer_core.primitives.bounded_vectors import BoundedVectors, SparseVectors, VectorSums
from privateer_core.primitives.clipping import GRID, Ball, VectorTotal
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.normal import EPSILON_MAX, REACH, RoundedNormal, sampling_cost

_REACH: Final = 1.01 * REACH
"""Noise is drawn up to so many standard deviations."""
_MOST: Final = (1 << 31) - 1
_BLOCK: Final = 1 << 21
"""Numbers of vectors at a time."""


def vector_standard_deviation(ball: Ball, epsilon: float, delta: float) -> float:
    """Return the standard deviation, in grid points, that makes one vector (epsilon, delta)-private.

    It pays for the sampler.

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    if not epsilon <= EPSILON_MAX:
        raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
    return published_standard_deviation(epsilon, delta - sampling_cost(ball.coordinates), ball.diameter)


class _NoisyVectors(Mechanism, frozen=True):
    """The common part of both mechanisms: sums on the grid, four bytes a coordinate.

    Parameters
    ----------
    ball
        Where people's vectors lie.
    standard_deviation
        Standard deviation of the noise in each coordinate, in grid points.
    """

    ball: Ball
    standard_deviation: float

    def __post_init__(self) -> None:
        if not 0 <= self.standard_deviation < math.inf:
            raise SpecError("there is no such noise", field="standard_deviation", remedy="use what the spec promises")

    @classmethod
    def calibrated(cls, ball: Ball, epsilon: float, delta: float) -> Self:
        """Return the mechanism that makes one vector, or a release, (epsilon, delta)-private."""
        return cls(ball, vector_standard_deviation(ball, epsilon, delta))

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation)

    @property
    @override
    def report_size(self) -> int:
        return 4 * self.ball.coordinates

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.ball.coordinates) if self.standard_deviation else 0.0

    @property
    def _event(self) -> Event | None:
        return Gaussian(self.standard_deviation, self.ball.diameter) if self.standard_deviation else None

    def _parsed(self, rows: bytes, most: float) -> NDArray[np.int32]:
        reports = whole(rows, np.dtype(("<i4", (self.ball.coordinates,))))
        good = not np.any(np.abs(reports.astype(np.int64)) > most)
        check_range(good, "a value that the mechanism cannot make")
        return reports

    @override
    def empty(self) -> VectorTotal:
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    @override
    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> VectorTotal:
        return total.merged(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def _rounded_sum(self, contributions: BoundedVectors, rng: "np.random.Generator") -> NDArray[np.int64]:
        if isinstance(contributions, SparseVectors):
            # What is 0 stays 0. A vector's length is that of its entries, so that they are clipped by themselves.
            ball = msgspec.structs.replace(self.ball, coordinates=contributions.values.shape[1])
            whole_numbers = _rounded(ball.clip(contributions.values) / ball.step, rng)
            found = np.bincount(contributions.places.ravel(), whole_numbers.ravel(), self.ball.coordinates)
            return np.asarray(found, dtype=np.int64)
        sums, step = np.zeros(self.ball.coordinates), max(1, _BLOCK // self.ball.coordinates)
        for start in range(0, max(1, len(contributions)), step):
            vectors = self.ball.clip(contributions.dense(slice(start, start + step)))
            sums += _rounded(vectors / self.ball.step, rng).sum(axis=0)
        return np.asarray(sums, dtype=np.int64)

    def _spread(self, people: int, drawn: int) -> tuple[float, float]:
        """Bound the error of an average of ``people`` with noise drawn ``drawn`` times; see `GaussianVectors.spread`.

        Normal noise and rounding are sub-Gaussian with these variances (rounding by Hoeffding's lemma: a quarter of a
        step's square). Rounding to whole numbers depends on the noise that it rounds: standard deviations add up there,
        not variances.
        """
        step = self.ball.bound / GRID
        noise = drawn * (self.standard_deviation + 0.5) ** 2 if self.standard_deviation else 0.0
        return (noise + 0.25 * people) * (step / people) ** 2, 0.0

    @override
    def weaker(self, factor: float) -> Self:
        less = self.standard_deviation / factor if self.standard_deviation else factor * GRID
        return msgspec.structs.replace(self, standard_deviation=less)


def _rounded(scaled: NDArray[np.float64], rng: "np.random.Generator") -> NDArray[np.float64]:
    """Return whole numbers of the shape of ``scaled``, each the next one below or above, with its mean."""
    floor = np.floor(scaled)
    return np.asarray(floor + (rng.random(scaled.shape) < scaled - floor))


class GaussianVectors(_NoisyVectors, frozen=True, tag="gaussian-vectors"):
    """Every device adds normal noise to its own vector.

    Raises
    ------
    SpecError
        If the noise does not fit the report's 32 bits a coordinate.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's diameter, exactly (rounded noise is post-processing of
    normal noise), plus `sampling_cost` in delta.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 * self.ball.reach + _REACH * self.standard_deviation < _MOST:
            raise SpecError("the noise is too large for a report", field="privacy.epsilon", remedy="raise it")

    @property
    @override
    def alone(self) -> Event | None:
        return self._event

    @property
    def error(self) -> float:
        """Variance of one report, all coordinates together."""
        return self.ball.coordinates * (self.standard_deviation * self.ball.step) ** 2

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Randomize the vectors of n people; return shape (n, coordinates)."""
        exact = self.ball.on_grid(contributions.values, noise)
        noisy = exact + self._normal.draw(exact.size, noise).reshape(exact.shape)
        return np.asarray(noisy, dtype="<i4")

    @override
    def parse(self, rows: bytes) -> NDArray[np.int32]:
        return self._parsed(rows, self.ball.reach + _REACH * self.standard_deviation)

    @override
    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        return self._released(total)

    def _released(self, total: VectorTotal) -> VectorSums:
        noise = total.reports * (self.standard_deviation**2 + 1 / 12) * self.ball.step**2
        return VectorSums(total.reports, np.asarray(total.sums * self.ball.step), noise)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release: independent normal noise adds up, so people need none of their own."""
        sums = self._rounded_sum(contributions, rng)
        spread = np.sqrt(len(contributions) * (self.standard_deviation**2 + 1 / 12))
        return self._released(VectorTotal(len(contributions), sums + np.rint(rng.normal(0, spread, len(sums)))))

    def spread(self, people: int) -> tuple[float, float]:
        """Bound how far the released average of ``people`` is off, in any direction of length 1: (variance, scale).

        With probability 1 - beta by at most sqrt(2 variance ln(1/beta)) + scale ln(1/beta); scale is 0 where the error
        is sub-Gaussian. Rounding is in it; how rewards themselves vary is not.
        """
        return self._spread(people, people)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"max": cls(Ball("max", 2.0, 3), 40_000.0), "l2": cls(Ball("l2", 0.5, 4), 20_000.0)}


class CentralVectors(_NoisyVectors, frozen=True, tag="central-vectors"):
    """Vectors reach a curator as they are; the release has normal noise of one standard deviation, or none at 0.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's diameter for the released sum, as `GaussianVectors` for
    a report. Noise is drawn once, when the round is released.
    """

    @property
    @override
    def released(self) -> Event | None:
        return self._event

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Return clipped vectors on the grid, shape (n, coordinates)."""
        return self.ball.on_grid(contributions.dense(slice(None)), noise).astype("<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Parse reports from their concatenated bytes; a curator holds people to the ball, which its promise needs."""
        reports = self._parsed(rows, self.ball.bound / self.ball.step + 1)
        check_range(self.ball.holds(reports), "a vector out of the ball")
        return reports

    @override
    def release(self, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        drawn = self._normal.draw(len(total.sums), noise) if self.standard_deviation else 0
        return self._released(total, total.sums + drawn)

    def _released(self, total: VectorTotal, sums: NDArray[np.int64]) -> VectorSums:
        noise = (self.standard_deviation**2 + 1 / 12) * self.ball.step**2 if self.standard_deviation else 0.0
        return VectorSums(total.reports, np.asarray(sums * self.ball.step), noise)

    @override
    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        sums = self._rounded_sum(contributions, rng)
        drawn = np.rint(rng.normal(0, 1, len(sums)) * self.standard_deviation).astype(np.int64)
        return self._released(VectorTotal(len(contributions), sums), sums + drawn)

    def spread(self, people: int) -> tuple[float, float]:
        """Bound how far the released average is off; see `GaussianVectors.spread`."""
        return self._spread(people, 1)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        sphere = Ball("l2", 0.5, 4)
        found = {"max": cls(Ball("max", 2.0, 3), 30_000.0), "l2": cls(sphere, 9_000.0), "exact": cls(sphere, 0.0)}
        return found | {"rare": cls(Ball("l2", 0.5, 4, below=0.02), 6_500.0)}
