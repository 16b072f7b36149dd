"""Discrete Laplace noise on every cell, twice: paper 1, eq. (11) and (12), done honestly."""

import math
from fractions import Fraction
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Event, Pure
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, VectorTotal, check_valid, view_rows
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.randomness import NoiseSource

GRID_POINTS_PER_UNIT: Final = 256
"""Grid points per unit of value; noise and values are integers on this grid."""
_SENSITIVITY: Final = 4
"""L1 change of (rewards, counts) when a person is replaced: one cell of each loses up to 1, another gains up to 1."""
_EPSILON_MIN: Final = 1e-3
"""Below it the noise would not fit the clamp."""
_CLAMP: Final = (1 << 30) - 2 * GRID_POINTS_PER_UNIT
"""Bound to which reports are clamped, far beyond any noise that is ever drawn."""


class CellSums(msgspec.Struct, frozen=True):
    """Private sums over one round, cell by cell."""

    additive: ClassVar[tuple[str, ...]] = ("reports", "rewards", "counts")

    reports: int  # number of reports
    # shape (keys, groups): noisy sum of rewards, and noisy number of people, in each cell
    rewards: Array
    counts: Array


class LaplaceCells(Mechanism, frozen=True, tag="laplace-cells"):
    """A mechanism with which every participant reports a noisy reward and a noisy count for every cell (key, group).

    Privacy cost: epsilon-LDP per report, from discrete Laplace noise of scale 4/epsilon on a vector whose L1 distance
    between any two people is at most 4. The noise is drawn exactly and on a grid, so floating point leaks nothing.

    layout: keys and groups of the round.
    epsilon: pure local privacy of a report.
    """

    pure: ClassVar[bool] = True

    layout: Layout
    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= _EPSILON_MIN:
            raise SpecError(
                f"the published mechanism takes {_EPSILON_MIN:g} or more", field="privacy.epsilon", remedy="raise it"
            )

    @classmethod
    def calibrated(cls, question: KeyedMeans, epsilon: float) -> Self:
        """Return the mechanism for a promise of each report by itself."""
        return cls(question.layout, epsilon)

    @property
    def scale(self) -> int:
        """Scale of the noise, in grid units: 4/epsilon, rounded up to a whole number."""
        return math.ceil(_SENSITIVITY * GRID_POINTS_PER_UNIT / Fraction(self.epsilon))

    @property
    def can_coins_choose_arm(self) -> bool:
        """Whether the coins of a report may be the coins that chose the participant's arm."""
        return True

    @property
    def report_size(self) -> int:
        """Bytes of a report: four for each cell and quantity."""
        return 4 * 2 * self.layout.keys * self.layout.groups

    @property
    def report_event(self) -> Event:
        """The privacy event of a single report."""
        return Pure(self.epsilon)

    @property
    def local_epsilon(self) -> float:
        """Pure epsilon of a single report."""
        return self.epsilon

    @property
    def _shape(self) -> tuple[int, int, int]:
        return (2, self.layout.keys, self.layout.groups)

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.int32]:
        """Randomize the contributions of n people; return shape (n, 2 * keys * groups)."""
        n = len(contributions)
        vectors = np.zeros((n, *self._shape), dtype=np.int64)
        keyed = np.flatnonzero(contributions.keys >= 0)
        keys, groups = contributions.keys[keyed], contributions.groups[keyed]
        vectors[keyed, 0, keys, groups] = np.rint(contributions.values[keyed] * GRID_POINTS_PER_UNIT).astype(np.int64)
        vectors[keyed, 1, keys, groups] = GRID_POINTS_PER_UNIT
        flat = vectors.reshape(n, -1)
        noisy = flat + DiscreteLaplace(self.scale).draw(flat.size, noise).reshape(flat.shape)
        return np.asarray(np.clip(noisy, -_CLAMP, _CLAMP), dtype="<i4")

    def parse(self, rows: bytes) -> NDArray[np.int32]:
        """Parse reports from their concatenated bytes; return shape (n, 2 * keys * groups)."""
        flat = view_rows(rows, np.dtype(("<i4", (self.report_size // 4,))))
        check_valid(not np.any(np.abs(flat.astype(np.int64)) > _CLAMP), "a value beyond the clamp")
        return flat

    def empty(self) -> VectorTotal:
        """Return the total of no reports."""
        return VectorTotal(0, np.zeros(self._shape, np.int64))

    def add(self, total: VectorTotal, reports: NDArray[np.int32]) -> VectorTotal:
        """Return ``total`` with ``reports`` counted in."""
        sums = reports.sum(axis=0, dtype=np.int64).reshape(self._shape)
        return total.merge_with(VectorTotal(len(reports), sums))

    def release(self, total: VectorTotal, _: NoiseSource) -> CellSums:
        """Return the release to the learner: a function of randomized reports, without further cost or noise."""
        return self._build_release(total)

    def _build_release(self, total: VectorTotal) -> CellSums:
        return CellSums(total.reports, total.sums[0] / GRID_POINTS_PER_UNIT, total.sums[1] / GRID_POINTS_PER_UNIT)

    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> CellSums:
        """Simulate a release: a sum of n geometric variables is negative binomial, so noise is drawn for sums."""
        size = self.layout.keys * self.layout.groups
        is_keyed = contributions.keys >= 0
        cells = contributions.keys[is_keyed] * self.layout.groups + contributions.groups[is_keyed]
        grid = np.rint(contributions.values[is_keyed] * GRID_POINTS_PER_UNIT)
        people = GRID_POINTS_PER_UNIT * np.bincount(cells, minlength=size).astype(np.float64)
        exact = np.stack([np.bincount(cells, grid, size).astype(np.float64), people])
        return self._simulate_sums(exact, len(contributions), rng)

    def simulate_counts(self, counts: Ints, without: int, rng: np.random.Generator) -> CellSums:
        """Simulate participants counted by key, group and value 0 or 1, (keys, groups, 2), and those without a key."""
        people = counts.sum(axis=-1)
        exact = GRID_POINTS_PER_UNIT * np.stack([counts[..., 1], people]).astype(np.float64)
        return self._simulate_sums(exact, int(people.sum()) + without, rng)

    def _simulate_sums(self, exact: Any, n: int, rng: np.random.Generator) -> CellSums:
        success = -math.expm1(-1.0 / self.scale)
        noise = rng.negative_binomial(n, success, self._shape) - rng.negative_binomial(n, success, self._shape)
        return self._build_release(VectorTotal(n, (exact.reshape(self._shape) + noise).astype(np.int64)))

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name."""
        return {f"{epsilon:g}": cls(Layout.example(), epsilon) for epsilon in (1.0, 4.0)}

    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilon."""
        return msgspec.structs.replace(self, epsilon=factor * self.epsilon)
