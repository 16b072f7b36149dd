"""Hits of a few keys with a trusted curator: sums of the parts of values, with noise independent of the values."""

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final, Self, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure
from privateer_core.arrays import Ints, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import NO_KEY, UNIT, Mechanism, build_keyed_records, parse_keyed_records
from privateer_core.mechanisms.named_symbol import PartTotal
from privateer_core.primitives.contributions import BERNSTEIN, BITS, CellHits, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.randomness import NoiseSource, RandomSource

REPORT: Final = np.dtype([("key", "<u4"), ("value", "<u2")])
SENSITIVITY: Final = 2
"""L1 change of all sums when a participant is replaced: parts that sum up to 1 move from one cell to another, in all by
2; within a cell they change by at most 2."""
PARTICIPANTS_MAX: Final = 500_000_000
"""Largest number of participants of a round whose squares add up in 64 bits."""
_RESOLUTION: Final = 1e-12
"""Variance up to which values of exact moments may be constant: the last digits of floating point."""


class CellPairs(Mechanism, frozen=True, tag="cell-pairs"):
    """Sums of values and of 1 - value per key, each with discrete Laplace noise; together they count participants.

    Parameters
    ----------
    layout
        Keys of the round; there is one group, since a record contains the participant's arm.
    scale
        Scale of the noise, in values; 0: no noise.

    Raises
    ------
    SpecError
        If there is no such noise, or coins would choose a group.

    Notes
    -----
    Privacy cost: 2 / scale, pure, for the replacement of a whole record. Noise is drawn exactly, and once, when the
    round is released.
    """

    message: ClassVar = REPORT
    pure: ClassVar[bool] = True
    parts: ClassVar[ValueParts] = BITS
    unit: ClassVar[int] = UNIT
    """Sum of the parts of a value."""
    resolution: ClassVar[float] = 0.0
    """Variance of values up to which it may be due to rounding alone; 0 if the release has no variance."""

    layout: SlotLayout
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.scale < 1e6 or self.layout.groups != 1:
            detail = "must be from 0 to below 1e6, without groups of coins"
            raise SpecError(detail, field="scale", remedy="calibrate it to the spec's promise")

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the mechanism whose releases are epsilon-private."""
        return cls(question.layout, math.ceil(SENSITIVITY * cls.unit / Fraction(epsilon)) / cls.unit)

    @property
    @override
    def release_event(self) -> Event | None:
        # One division of whole numbers, so that no rounding is above the promise.
        return Pure(SENSITIVITY * self.unit / self._laplace.scale) if self.scale else None

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.from_min_scale(self.scale * self.unit)

    @property
    def noise(self) -> float:
        """Variance of the noise in each sum, in values."""
        return self._laplace.variance / self.unit**2 if self.scale else 0.0

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        """Return the records of n participants, values rounded to the grid at random; shape (n,), dtype ``message``."""
        return self._records(contributions, noise)

    def _records(self, contributions: KeyedValues, source: RandomSource) -> Records:
        return build_keyed_records(contributions, self.message, source)

    @override
    def parse(self, rows: bytes) -> Records:
        return parse_keyed_records(rows, self.message, self.layout.keys)

    def split_values(self, values: Ints) -> Ints:
        """Return the parts of values on the grid, (P, n), whose sum is ``unit``."""
        return np.stack([UNIT - values, values])

    def empty(self) -> PartTotal:
        """Return the total of no reports, in grid units."""
        return PartTotal.empty(self.parts.count, self.layout.keys, 1)

    @override
    def add(self, total: PartTotal, reports: Records) -> PartTotal:
        """Return ``total`` with the parts of the records' values added to the sums of their keys."""
        keyed, cells = reports[reports["key"] != NO_KEY], np.zeros_like(total.cells)
        keys = keyed["key"].astype(np.int64)
        # Whole numbers of 64 bits, since `bincount` adds weights in floating point, which is exact up to 2^53.
        for sums, values in zip(cells[..., 0], self._split_records(keyed), strict=True):
            np.add.at(sums, keys, values)
        return total.merge_with(self._build_total(cells, len(reports)))

    def _build_total(self, cells: Ints, n_participants: int) -> PartTotal:
        return PartTotal(n_participants, cells, np.full(cells.shape[1:], n_participants))

    def _split_records(self, records: Records) -> Ints:
        """Return the parts of records, (P, n), which are added to the sums of their keys."""
        return self.split_values(records["value"].astype(np.int64))

    @override
    def release(self, total: Any, noise: NoiseSource) -> CellHits:
        size = total.cells.size
        return self._build_release(total, self._laplace.draw(size, noise) if self.scale else np.zeros(size, np.int64))

    def _build_release(self, total: PartTotal, noise: Ints) -> CellHits:
        # The noise of the last part is drawn first.
        return self._build_hits(total, total.cells + noise.reshape(total.cells.shape)[::-1])

    def _build_hits(self, total: PartTotal, cells: Ints, **attributes: Any) -> CellHits:
        """Return the release of the parts of values, (P, keys, 1)."""
        parameters = {"reports": total.reports, "counts": total.counts, "gain": 1.0, "other": 0.0, "noise": self.noise}
        return CellHits.from_parts(self.parts, cells, self.unit, **parameters, resolution=self.resolution, **attributes)

    def moments(self, contributions: KeyedValues) -> CellHits:
        """Return the exact moments of values, without rounding and noise, for data that need no privacy."""
        has_key, n_participants = contributions.keys >= 0, len(contributions)
        keys, values = contributions.keys[has_key], contributions.values[has_key]
        sums = np.zeros((3, self.layout.keys, 1))
        for cells, power in zip(sums[..., 0], (values, values**0, values**2), strict=True):
            np.add.at(cells, keys, power)
        positive, hits, squares = sums
        known_squares, counts = None if self.parts == BITS else squares, np.full(hits.shape, n_participants)
        moments = {"squares": known_squares, "parts": self.parts, "resolution": _RESOLUTION}
        return CellHits(n_participants, positive, hits, counts, gain=1.0, other=0.0, **cast(Any, moments))

    @override
    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> CellHits:
        return self._simulate_release(self.add(self.empty(), self._records(contributions, rng)), rng)

    def simulate_counts(self, counts: Ints, n_keyless: int, rng: "np.random.Generator") -> CellHits:
        """Simulate the release of participants counted by key, group and value, (keys, 1, 2), or without a key."""
        cells = np.moveaxis(counts @ self.split_values(np.array([0, UNIT])).T, -1, 0)
        return self._simulate_release(self._build_total(cells, int(counts.sum()) + n_keyless), rng)

    def _simulate_release(self, total: PartTotal, rng: "np.random.Generator") -> CellHits:
        size = total.cells.size
        return self._build_release(total, self._laplace.simulate(size, rng) if self.scale else np.zeros(size, np.int64))

    def can_answer(self, question: KeyedHits) -> bool:
        """Whether a release answers the question: with the variance of values only if the question asks for it."""
        return question.expected is None

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {f"{scale:g}": cls(SlotLayout.ungrouped(4, 5), scale) for scale in (1.0, 4.0)}

    @override
    def with_less_noise(self, factor: float) -> Self:
        return msgspec.structs.replace(self, scale=self.scale / factor if self.scale else factor)


class CellTriples(CellPairs, frozen=True, tag="cell-triples"):
    """Sums of (1 - r)^2, 2 r (1 - r) and r^2 of values r per key, which give their variance at no further cost.

    Parameters, errors and the record are those of `CellPairs`.

    Notes
    -----
    Privacy cost: that of `CellPairs`. The three parts (Bernstein polynomials) are at least 0 and sum up to 1 exactly,
    on the grid of squares: a replacement changes all sums by 2. The noise is on the same grid.
    """

    parts: ClassVar[ValueParts] = BERNSTEIN
    unit: ClassVar[int] = UNIT**2
    resolution: ClassVar[float] = 1 / UNIT**2

    @override
    def split_values(self, values: Ints) -> Ints:
        complements = UNIT - values
        return np.stack([complements * complements, 2 * values * complements, values * values])

    @override
    def can_answer(self, question: KeyedHits) -> bool:
        return question.expected is not None and not question.has_covariate
