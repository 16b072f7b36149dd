"""Vectors with Laplace noise in every coordinate: the published pure mechanism, for comparison."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import BoundedVectors, VectorSums
from privateer.errors import OutOfRange, SpecError
from privateer.sampling.discrete import DIGITS, SCALE_MAX, discrete_laplace
from privateer.sampling.entropy import NoiseSource
from privateer.vectors import Ball, VectorTotal

_STEPS: Final = 256
"""Grid points per unit of the bound; coarser than for normal noise, so that its digits suffice."""
_MOST: Final = (1 << DIGITS) - 1


@dataclass(frozen=True)
class LaplaceVectors:
    """Every device adds discrete Laplace noise to every coordinate.

    Notes
    -----
    Privacy cost: epsilon-LDP at the ball's L1 diameter, coordinates times 2 bound in the ``max`` norm; strictly with a
    delta of (1 + e^epsilon) `privateer.sampling.discrete.LAPLACE_COST` a coordinate.

    Raises
    ------
    SpecError
        If the noise does not fit its digits.
    """

    ball: Ball
    epsilon: float

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and self.scale <= SCALE_MAX):
            raise SpecError("the noise is too large for a report", field="privacy.epsilon", remedy="raise it")

    @cached_property
    def scale(self) -> float:
        """Of the noise, in grid points; rounding at random widens a coordinate's range by 2."""
        coordinates = self.ball.coordinates
        if self.ball.norm == "max":
            return coordinates * (2 * _STEPS + 2) / self.epsilon
        return (2 * _STEPS * math.sqrt(coordinates) + 2 * coordinates) / self.epsilon

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return 4 * self.ball.coordinates

    def _rounded(self, contributions: BoundedVectors, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        scaled = self.ball.clip(contributions.values) / self.ball.bound * _STEPS
        floor = np.floor(scaled)
        return np.asarray(floor + (uniform < scaled - floor), dtype=np.int64)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Reports of n people, shape (n, coordinates)."""
        shape = contributions.values.shape
        words = noise.words(contributions.values.size) >> np.uint64(11)
        told = self._rounded(contributions, words.astype(np.float64).reshape(shape) * 2.0**-53)
        noisy = told + discrete_laplace(told.size, self.scale, noise).reshape(told.shape)
        return np.asarray(np.clip(noisy, -_MOST, _MOST), dtype="<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Reports from their concatenated bytes.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports of clamped values.
        """
        if len(rows) % self.report_size:
            raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
        reports = np.frombuffer(rows, dtype="<i4").reshape(-1, self.ball.coordinates)
        if np.any(np.abs(reports.astype(np.int64)) > _MOST):
            raise OutOfRange("a value beyond the clamp", remedy="send what the client library makes")
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

    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        """What the learner may see: a function of randomized reports alone, without further cost or noise."""
        return self._released(total)

    def _released(self, total: VectorTotal) -> VectorSums:
        ratio, unit = math.exp(-1 / self.scale), self.ball.bound / _STEPS
        noise = total.reports * 2 * ratio / (1 - ratio) ** 2 * unit**2
        return VectorSums(total.reports, np.asarray(total.sums * unit), noise)

    def simulate(self, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        """Draw a release: a sum of n geometrics is negative binomial, so people need no noise of their own."""
        n = len(contributions)
        told = self._rounded(contributions, rng.random(contributions.values.shape)).sum(axis=0)
        success = -math.expm1(-1.0 / self.scale)
        noise = rng.negative_binomial(n, success, len(told)) - rng.negative_binomial(n, success, len(told))
        return self._released(VectorTotal(n, told + noise))
