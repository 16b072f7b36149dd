"""Vectors with normal noise, drawn by every device, or once by a curator at the release."""

import math
from functools import cached_property
from typing import Any, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.arrays import Ints, NDArray
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, VectorTotal, check_valid, view_rows
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import GRID, Ball
from privateer_core.sampling.normal import DEVIATIONS_MAX, EPSILON_MAX, RoundedNormal, sampling_cost
from privateer_core.sampling.randomness import NoiseSource, round_to_integers

_NOISE_MAX: Final = 1.01 * DEVIATIONS_MAX
"""Largest absolute noise, in standard deviations."""
_INT32_MAX: Final = (1 << 31) - 1
_BLOCK_NUMBERS: Final = 1 << 21
"""Number of coordinates summed at a time."""


class _NoisyVectors(Mechanism, frozen=True):
    """Base class of sums of vectors on a grid with normal noise; by default a report has four bytes a coordinate.

    Parameters
    ----------
    ball
        The vectors that there are: a `Ball`, or another kind with its coordinates, grid and sensitivity.
    standard_deviation
        Standard deviation of the noise in each coordinate, in grid points.
    """

    ball: Any
    standard_deviation: float

    def __post_init__(self) -> None:
        if not 0 <= self.standard_deviation < math.inf:
            detail = "must be a finite number of at least 0"
            raise SpecError(detail, field="standard_deviation", remedy="calibrate it to the spec's promise")

    @classmethod
    def calibrated(cls, ball: Any, epsilon: float, delta: float) -> Self:
        """Return the mechanism that makes vectors private, sampler included; refuse an uncertified promise."""
        if not epsilon <= EPSILON_MAX:
            raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
        remaining_delta = delta - sampling_cost(ball.coordinates)
        return cls(ball, published_standard_deviation(epsilon, remaining_delta, ball.sensitivity))

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation)

    @property
    @override
    def report_size(self) -> int:
        return 4 * int(self.ball.coordinates)

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.ball.coordinates) if self.standard_deviation else 0.0

    @property
    def _event(self) -> Event | None:
        return Gaussian(self.standard_deviation, self.ball.sensitivity) if self.standard_deviation else None

    def _parse_within(self, rows: bytes, max_value: float) -> NDArray[np.int32]:
        reports = view_rows(rows, np.dtype(("<i4", (self.ball.coordinates,))))
        check_valid(not np.any(np.abs(reports.astype(np.int64)) > max_value), "a value that the mechanism cannot make")
        return reports

    @override
    def empty(self) -> VectorTotal:
        return VectorTotal(0, np.zeros(self.ball.coordinates, np.int64))

    @override
    def add(self, total: VectorTotal, reports: Any) -> VectorTotal:
        return total.merge_with(VectorTotal(len(reports), reports.sum(axis=0, dtype=np.int64)))

    def _rounded_sum(self, contributions: BoundedVectors, rng: "np.random.Generator") -> Ints:
        """Return the sum of clipped vectors, each rounded to the grid at random; (coordinates,)."""
        sums, step = np.zeros(self.ball.coordinates, np.int64), max(1, _BLOCK_NUMBERS // self.ball.coordinates)
        for start in range(0, max(1, len(contributions)), step):
            vectors = self.ball.clip(contributions.values[start : start + step])
            sums += round_to_integers(vectors / self.ball.step, rng).sum(axis=0)
        return sums

    def _error_bounds(self, n_participants: int, n_draws: int) -> tuple[float, float]:
        """Bound the error of an average with noise drawn ``n_draws`` times; see `GaussianVectors.error_bounds`.

        Normal noise and rounding are sub-Gaussian with these variances (rounding by Hoeffding's lemma: a quarter of a
        step's square). Rounding to whole numbers depends on the noise that it rounds: standard deviations add up there,
        not variances.
        """
        step = self.ball.bound / GRID
        noise = n_draws * (self.standard_deviation + 0.5) ** 2 if self.standard_deviation else 0.0
        return (noise + 0.25 * n_participants) * (step / n_participants) ** 2, 0.0

    @override
    def with_less_noise(self, factor: float) -> Self:
        standard_deviation = self.standard_deviation / factor if self.standard_deviation else factor * GRID
        return msgspec.structs.replace(self, standard_deviation=standard_deviation)


class GaussianVectors(_NoisyVectors, frozen=True, tag="gaussian-vectors"):
    """Vectors to which every device adds normal noise.

    Raises
    ------
    SpecError
        If the noise does not fit the report's 32 bits a coordinate.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's sensitivity, exactly (rounded noise is post-processing of
    normal noise), plus `sampling_cost` in delta.
    """

    ball: Ball

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 * self.ball.max_norm + _NOISE_MAX * self.standard_deviation < _INT32_MAX:
            raise SpecError("the noise is too large for a report", field="privacy.epsilon", remedy="raise it")

    @property
    @override
    def report_event(self) -> Event | None:
        return self._event

    @property
    def error(self) -> float:
        """Variance of a report, summed over coordinates."""
        return self.ball.coordinates * (self.standard_deviation * self.ball.step) ** 2

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Randomize the vectors of n participants; return shape (n, coordinates)."""
        exact = self.ball.round_to_grid(contributions.values, noise)
        return np.asarray(exact + self._normal.draw(exact.size, noise).reshape(exact.shape), dtype="<i4")

    @override
    def parse(self, rows: bytes) -> NDArray[np.int32]:
        return self._parse_within(rows, self.ball.max_norm + _NOISE_MAX * self.standard_deviation)

    @override
    def release(self, total: VectorTotal, _: NoiseSource) -> VectorSums:
        return self._build_release(total)

    def _build_release(self, total: VectorTotal) -> VectorSums:
        noise = total.reports * (self.standard_deviation**2 + 1 / 12) * self.ball.step**2
        return VectorSums(total.reports, np.asarray(total.sums * self.ball.step), noise)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release: independent normal noise adds up, so that it is drawn once for all participants."""
        sums = self._rounded_sum(contributions, rng)
        sum_deviation = np.sqrt(len(contributions) * (self.standard_deviation**2 + 1 / 12))
        noise = np.rint(rng.normal(0, sum_deviation, len(sums)))
        return self._build_release(VectorTotal(len(contributions), sums + noise))

    def error_bounds(self, n_participants: int) -> tuple[float, float]:
        """Bound the error of a released average along any unit vector, by parameters (variance, scale).

        With probability 1 - beta it is at most sqrt(2 variance ln(1/beta)) + scale ln(1/beta); scale is 0 if the error
        is sub-Gaussian. The error includes rounding, but not the variance of rewards.
        """
        return self._error_bounds(n_participants, n_participants)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"max": cls(Ball("max", 2.0, 3), 40_000.0), "l2": cls(Ball("l2", 0.5, 4), 20_000.0)}


class CuratedSums(_NoisyVectors, frozen=True):
    """Base class of a curator's sums, released with normal noise of a standard deviation, or without noise at 0.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at the ball's sensitivity for a released sum, as `GaussianVectors` for
    a report. Noise is drawn once, when the round is released.
    """

    @property
    @override
    def release_event(self) -> Event | None:
        return self._event

    @override
    def release(self, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        drawn_noise = self._normal.draw(len(total.sums), noise) if self.standard_deviation else 0
        return self._build_release(total, total.sums + drawn_noise)

    def _build_release(self, total: VectorTotal, sums: Ints) -> VectorSums:
        noise = (self.standard_deviation**2 + 1 / 12) * self.ball.step**2 if self.standard_deviation else 0.0
        return VectorSums(total.reports, np.asarray(sums * self.ball.step), noise)

    def _simulate_release(self, total: VectorTotal, rng: "np.random.Generator") -> VectorSums:
        drawn_noise = np.rint(rng.normal(0, 1, len(total.sums)) * self.standard_deviation).astype(np.int64)
        return self._build_release(total, total.sums + drawn_noise)


class CentralVectors(CuratedSums, frozen=True, tag="central-vectors"):
    """A curator's sums of exact vectors; see `CuratedSums`."""

    ball: Ball

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int32]:
        """Return clipped vectors on the grid, shape (n, coordinates)."""
        return self.ball.round_to_grid(contributions.values, noise).astype("<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Parse reports from their concatenated bytes; vectors outside of the ball would break the promise."""
        reports = self._parse_within(rows, self.ball.bound / self.ball.step + 1)
        check_valid(self.ball.contains(reports), "a vector out of the ball")
        return reports

    @override
    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        return self._simulate_release(VectorTotal(len(contributions), self._rounded_sum(contributions, rng)), rng)

    def error_bounds(self, n_participants: int) -> tuple[float, float]:
        """Bound the error of the released average; see `GaussianVectors.error_bounds`."""
        return self._error_bounds(n_participants, 1)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        sphere = Ball("l2", 0.5, 4)
        return {"max": cls(Ball("max", 2.0, 3), 30_000.0), "l2": cls(sphere, 9_000.0), "exact": cls(sphere, 0.0)}
