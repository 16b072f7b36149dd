"""Discrete Laplace noise on every cell, twice: paper 1's published mechanism, eq. (11) and (12), done honestly."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.coins import Layout
from privateer.contributions import CellSums, KeyedValues
from privateer.errors import OutOfRange, SpecError
from privateer.sampling.discrete import DIGITS, discrete_laplace
from privateer.sampling.entropy import NoiseSource

_UNIT: Final = 256
"""Grid points per unit of value; noise and values are integers on this grid."""
_SENSITIVITY: Final = 4
"""L1 change of (rewards, counts) when a person is replaced: one cell of each loses up to 1, another gains up to 1."""
_EPSILON_MIN: Final = 1e-3
"""Below it the noise would not fit its digits."""
_CLAMP: Final = (1 << DIGITS) - 2 * _UNIT
"""Reports are clamped well inside the noise's digits."""


@dataclass(frozen=True)
class CellTotal:
    """Integer sums over reports, shape (2, keys, groups) in grid units: additive in any order, mergeable."""

    reports: int
    sums: NDArray[np.int64]


@dataclass(frozen=True)
class LaplaceCells:
    """Every person reports a noisy reward and a noisy count for every cell (key, group).

    Notes
    -----
    Privacy cost: epsilon-LDP per report: discrete Laplace noise of scale 4/epsilon on a vector whose L1 distance
    between any two people is at most 4. On a grid, so nothing leaks through floating point; what drawing the noise may
    add to delta is `privateer.sampling.discrete.LAPLACE_COST`, times 1 + e^epsilon, for each cell and quantity.
    """

    layout: Layout
    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= _EPSILON_MIN:
            raise SpecError(
                f"the published mechanism takes {_EPSILON_MIN:g} or more", field="privacy.epsilon", remedy="raise it"
            )

    @property
    def scale(self) -> float:
        """Scale of the noise, in grid units."""
        return _SENSITIVITY * _UNIT / self.epsilon

    @property
    def report_size(self) -> int:
        """Bytes of a report: four per cell and quantity."""
        return 4 * 2 * self.layout.keys * self.layout.groups

    def _shape(self) -> tuple[int, int, int]:
        return (2, self.layout.keys, self.layout.groups)

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.int32]:
        """Reports of n people, shape (n, 2 * keys * groups)."""
        n, shape = len(contributions), self._shape()
        vectors = np.zeros((n, *shape), dtype=np.int64)
        who = np.flatnonzero(contributions.keys >= 0)
        keys, groups = contributions.keys[who], contributions.groups[who]
        vectors[who, 0, keys, groups] = np.rint(contributions.values[who] * _UNIT).astype(np.int64)
        vectors[who, 1, keys, groups] = _UNIT
        flat = vectors.reshape(n, -1)
        noisy = flat + discrete_laplace(flat.size, self.scale, noise).reshape(flat.shape)
        return np.asarray(np.clip(noisy, -_CLAMP, _CLAMP), dtype="<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Reports from their concatenated bytes.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports of clamped values.
        """
        if len(rows) % self.report_size:
            raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
        reports = np.frombuffer(rows, dtype="<i4").reshape(-1, self.report_size // 4)
        if np.any(np.abs(reports.astype(np.int64)) > _CLAMP):
            raise OutOfRange("a value beyond the clamp", remedy="send what the client library makes")
        return reports

    def empty(self) -> CellTotal:
        """The total of no reports."""
        return CellTotal(0, np.zeros(self._shape(), np.int64))

    def add(self, total: CellTotal, reports: NDArray[np.int32]) -> CellTotal:
        """``total`` with ``reports`` counted in."""
        sums = reports.sum(axis=0, dtype=np.int64).reshape(self._shape())
        return CellTotal(total.reports + len(reports), total.sums + sums)

    def merge(self, left: CellTotal, right: CellTotal) -> CellTotal:
        """The total of two disjoint sets of reports."""
        return CellTotal(left.reports + right.reports, left.sums + right.sums)

    def release(self, total: CellTotal, _: NoiseSource) -> CellSums:
        """What the learner may see: a function of randomized reports alone, without further cost or noise."""
        return self._released(total)

    def _released(self, total: CellTotal) -> CellSums:
        return CellSums(total.reports, total.sums[0] / _UNIT, total.sums[1] / _UNIT)

    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> CellSums:
        """Draw a release: a sum of n geometrics is negative binomial, so people need no noise of their own."""
        shape = self._shape()
        size = shape[1] * shape[2]
        who = contributions.keys >= 0
        cells = contributions.keys[who] * shape[2] + contributions.groups[who]
        grid = np.rint(contributions.values[who] * _UNIT)
        people = _UNIT * np.bincount(cells, minlength=size).astype(np.float64)
        exact = np.stack([np.bincount(cells, grid, size).astype(np.float64), people])
        return self._simulated(exact, len(contributions), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: np.random.Generator) -> CellSums:
        """As `simulate`, for people counted by key, group and value 0 or 1, (keys, groups, 2), and those without."""
        people = counts.sum(axis=-1)
        exact = _UNIT * np.stack([counts[..., 1], people]).astype(np.float64)
        return self._simulated(exact, int(people.sum()) + without, rng)

    def _simulated(self, exact: NDArray[np.float64], n: int, rng: np.random.Generator) -> CellSums:
        shape = self._shape()
        success = -math.expm1(-1.0 / self.scale)
        noise = rng.negative_binomial(n, success, shape) - rng.negative_binomial(n, success, shape)
        return self._released(CellTotal(n, (exact.reshape(shape) + noise).astype(np.int64)))
