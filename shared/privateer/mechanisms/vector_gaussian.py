"""Vectors with normal noise: from every device (local), or once at release by a curator (central, none)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.gaussian import classic_gaussian_standard_deviation, gaussian_standard_deviation
from privateer.contributions import BoundedVectors, VectorSums
from privateer.errors import OutOfRange, SpecError
from privateer.sampling.entropy import NoiseSource
from privateer.sampling.normal import EPSILON_MAX, REACH, RoundedNormal, sampling_cost
from privateer.vectors import Ball, VectorTotal

_REACH: Final = 1.01 * REACH
"""Noise is drawn up to so many deviations."""
_MOST: Final = (1 << 31) - 1


def vector_standard_deviation(ball: Ball, epsilon: float, delta: float, calibration: str = "tight") -> float:
    """Deviation of the noise, in grid points, that makes one vector (epsilon, delta)-private.

    ``tight`` is exact and pays for the sampler; ``published`` is the classic form, which is private below epsilon 1
    alone.

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    if calibration == "published":
        return classic_gaussian_standard_deviation(epsilon, delta, ball.diameter)
    if not epsilon <= EPSILON_MAX:
        raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
    return gaussian_standard_deviation(epsilon, delta - sampling_cost(ball.coordinates), ball.diameter)


@dataclass(frozen=True)
class GaussianVectors:
    """Every device adds normal noise to its own vector.

    Parameters
    ----------
    ball
        What people may tell.
    deviation
        Of the noise in each coordinate, in grid points.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's diameter, exactly (rounded noise is post-processing of
    normal noise), plus `sampling_cost` in delta.

    Raises
    ------
    SpecError
        If the noise does not fit the report's 32 bits a coordinate.
    """

    ball: Ball
    standard_deviation: float

    def __post_init__(self) -> None:
        if not self.ball.diameter + _REACH * self.standard_deviation < _MOST:
            raise SpecError("the noise is too large for a report", field="privacy.epsilon", remedy="raise it")

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation)

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return 4 * self.ball.coordinates

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Reports of n people, shape (n, coordinates)."""
        told = self.ball.on_grid(contributions.values, noise)
        noisy = told + self._normal.draw(told.size, noise).reshape(told.shape)
        return np.asarray(noisy, dtype="<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Reports from their concatenated bytes.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports, or a value is beyond what noise can reach.
        """
        most = self.ball.diameter / 2 + _REACH * self.standard_deviation
        return _parsed(rows, self.ball.coordinates, most)

    def empty(self) -> VectorTotal:
        """The total of no reports."""
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> VectorTotal:
        """``total`` with ``reports`` (n, coordinates) counted in."""
        return total.merged(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def merge(self, left: VectorTotal, right: VectorTotal) -> VectorTotal:
        """The total of two disjoint sets of reports."""
        return left.merged(right)

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """What the learner may see: a function of randomized reports alone, without further cost or noise."""
        return self._released(total)

    def _released(self, total: VectorTotal) -> VectorSums:
        noise = total.reports * (self.standard_deviation**2 + 1 / 12) * self.ball.step**2
        return VectorSums(total.reports, np.asarray(total.sums * self.ball.step), noise)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release: independent normal noise adds up, so people need none of their own."""
        sums = _rounded_sum(self.ball, contributions, rng)
        spread = np.sqrt(len(contributions) * (self.standard_deviation**2 + 1 / 12))
        return self._released(VectorTotal(len(contributions), sums + np.rint(rng.normal(0, spread, len(sums)))))


@dataclass(frozen=True)
class CentralVectors:
    """Vectors reach a curator as they are; the release has normal noise of one deviation.

    Parameters
    ----------
    ball
        What people may tell.
    deviation
        Of the noise in each coordinate, in grid points; 0 under the trust model ``none``.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's diameter for the released sum, as `GaussianVectors` for
    a report. Noise is drawn once, when the round is released.
    """

    ball: Ball
    standard_deviation: float

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation)

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return 4 * self.ball.coordinates

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Clipped vectors on the grid, shape (n, coordinates)."""
        return self.ball.on_grid(contributions.values, noise).astype("<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Reports from their concatenated bytes; the curator holds people to the ball, which its promise relies on.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports, or a vector is out of the ball.
        """
        reports = _parsed(rows, self.ball.coordinates, self.ball.bound / self.ball.step + 1)
        if np.any(np.linalg.norm(reports.astype(np.float64), axis=1) > self.ball.diameter / 2):
            raise OutOfRange("a vector out of the ball", remedy="send what the client library makes")
        return reports

    def empty(self) -> VectorTotal:
        """The total of no reports."""
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> VectorTotal:
        """``total`` with ``reports`` (n, coordinates) counted in."""
        return total.merged(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def merge(self, left: VectorTotal, right: VectorTotal) -> VectorTotal:
        """The total of two disjoint sets of reports."""
        return left.merged(right)

    def release(self, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        """What the learner may see; every call draws fresh noise, so a round is released once."""
        drawn = self._normal.draw(len(total.sums), noise) if self.standard_deviation else 0
        return self._released(total, total.sums + drawn)

    def _released(self, total: VectorTotal, sums: NDArray[np.int64]) -> VectorSums:
        noise = (self.standard_deviation**2 + 1 / 12) * self.ball.step**2 if self.standard_deviation else 0.0
        return VectorSums(total.reports, np.asarray(sums * self.ball.step), noise)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release."""
        sums = _rounded_sum(self.ball, contributions, rng)
        drawn = np.rint(rng.normal(0, 1, len(sums)) * self.standard_deviation).astype(np.int64)
        return self._released(VectorTotal(len(contributions), sums), sums + drawn)


def _parsed(rows: bytes, coordinates: int, most: float) -> NDArray[np.int32]:
    if len(rows) % (4 * coordinates):
        raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
    reports = np.frombuffer(rows, dtype="<i4").reshape(-1, coordinates)
    if np.any(np.abs(reports.astype(np.int64)) > most):
        raise OutOfRange("a value that the mechanism cannot make", remedy="send what the client library makes")
    return reports


def _rounded_sum(ball: Ball, contributions: BoundedVectors, rng: np.random.Generator) -> NDArray[np.int64]:
    scaled = ball.clip(contributions.values) / ball.step
    floor = np.floor(scaled)
    return np.asarray((floor + (rng.random(scaled.shape) < scaled - floor)).sum(axis=0), dtype=np.int64)
