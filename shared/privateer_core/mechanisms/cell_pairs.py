"""Hits of a few keys with a trusted curator: sums of the parts of values, with the same noise whatever they are."""

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import NO_KEY, UNIT, Mechanism, keyed_records, parse_keyed
from privateer_core.mechanisms.named_symbol import PartTotal
from privateer_core.primitives.contributions import BERNSTEIN, BITS, CellHits, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import DiscreteLaplace

REPORT: Final = np.dtype([("key", "<u4"), ("value", "<u2")])
SENSITIVITY: Final = 2
"""L1 change of all sums when a person is replaced: parts that sum up to 1 move from one cell to another, in all by 2;
within a cell they change by no more."""


PEOPLE_MAX: Final = 500_000_000
"""People of a round whose squares add up in 64 bits."""
_LAST_DIGITS: Final = 1e-12
"""The same of moments in floating point, whose last digits differ by less."""


class CellPairs(Mechanism, frozen=True, tag="cell-pairs"):
    """Sums of values and of 1 - value per key, each with discrete Laplace noise. Their sum tells how many have the key.

    Parameters
    ----------
    layout
        Keys of the round; there is one group, since a record says what its person got.
    scale
        Scale of the noise, in values; 0: there is none.

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
    """What the parts of a value add up to."""
    resolution: ClassVar[float] = 0.0
    """Variance of values up to which rounding may be all of it; 0 where none is told."""

    layout: SlotLayout
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.scale < 1e6 or self.layout.groups != 1:
            raise SpecError("there is no such noise", field="scale", remedy="use what the spec promises")

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the mechanism whose releases are epsilon-private."""
        return cls(question.layout, math.ceil(SENSITIVITY * cls.unit / Fraction(epsilon)) / cls.unit)

    @property
    @override
    def released(self) -> Event | None:
        # One division of whole numbers, so that no rounding is above the promise.
        return Pure(SENSITIVITY * self.unit / self._laplace.scale) if self.scale else None

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.at_least(self.scale * self.unit)

    @property
    def noise(self) -> float:
        """Variance of what is added to each sum, in values."""
        return self._laplace.variance / self.unit**2 if self.scale else 0.0

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        """Return the records of n people, values rounded to the grid at random; shape (n,), dtype ``message``."""
        return self._records(contributions, noise)

    def _records(self, contributions: KeyedValues, source: "NoiseSource | np.random.Generator") -> NDArray[np.void]:
        return keyed_records(contributions, self.message, source)

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        return parse_keyed(rows, self.message, self.layout.keys)

    def parted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the parts of values on the grid, (P, n), whose sum is ``unit``."""
        return np.stack([UNIT - values, values])

    def empty(self) -> PartTotal:
        """Return the total of no reports, in grid units."""
        return PartTotal.empty(self.parts.count, self.layout.keys, 1)

    @override
    def add(self, total: PartTotal, reports: NDArray[np.void]) -> PartTotal:
        keyed, cells = reports[reports["key"] != NO_KEY], np.zeros_like(total.cells)
        keys = keyed["key"].astype(np.int64)
        # Whole numbers of 64 bits, since `bincount` adds weights in floating point, which is exact up to 2^53.
        for sums, part in zip(cells[..., 0], self._parts_of(keyed), strict=True):
            np.add.at(sums, keys, part)
        return total.merged(self._total_of(cells, len(reports)))

    def _total_of(self, cells: NDArray[np.int64], people: int) -> PartTotal:
        return PartTotal(people, cells, np.full(cells.shape[1:], people))

    def _parts_of(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return what records add to the sums of their keys, (P, n)."""
        return self.parted(records["value"].astype(np.int64))

    @override
    def release(self, total: Any, noise: NoiseSource) -> CellHits:
        size = total.cells.size
        return self._released(total, self._laplace.draw(size, noise) if self.scale else np.zeros(size, np.int64))

    def _released(self, total: PartTotal, drawn: NDArray[np.int64]) -> CellHits:
        # The last part's noise is the first that was drawn.
        return self._hits(total, total.cells + drawn.reshape(total.cells.shape)[::-1])

    def _hits(self, total: PartTotal, cells: NDArray[np.int64], **others: Any) -> CellHits:
        """Return the release of the parts of values, (P, keys, 1)."""
        facts = {"reports": total.reports, "counts": total.counts, "gain": 1.0, "other": 0.0, "noise": self.noise}
        return CellHits.of_parts(self.parts, cells, self.unit, **facts, resolution=self.resolution, **others)

    def moments(self, contributions: KeyedValues) -> CellHits:
        """Return what values tell that nobody has rounded, without noise: for rows that are all in one place."""
        keyed, people = contributions.keys >= 0, len(contributions)
        keys, values = contributions.keys[keyed], contributions.values[keyed]
        sums = np.zeros((3, self.layout.keys, 1))
        for cells, power in zip(sums[..., 0], (values, values**0, values**2), strict=True):
            np.add.at(cells, keys, power)
        positive, hits, squares = sums
        known, counts = None if self.parts == BITS else squares, np.full(hits.shape, people)
        return CellHits(
            people, positive, hits, counts, 1.0, 0.0, squares=known, parts=self.parts, resolution=_LAST_DIGITS
        )

    @override
    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> CellHits:
        return self._simulated(self.add(self.empty(), self._records(contributions, rng)), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: "np.random.Generator") -> CellHits:
        """Simulate people counted by key, group and value 0 or 1, (keys, 1, 2), and people without a key."""
        cells = np.moveaxis(counts @ self.parted(np.array([0, UNIT])).T, -1, 0)
        return self._simulated(self._total_of(cells, int(counts.sum()) + without), rng)

    def _simulated(self, total: PartTotal, rng: "np.random.Generator") -> CellHits:
        size = total.cells.size
        return self._released(total, self._laplace.simulate(size, rng) if self.scale else np.zeros(size, np.int64))

    def fits(self, question: KeyedHits) -> bool:
        """Whether it tells what is asked: the variance of values just where that is wanted."""
        return question.expected is None

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        layout = SlotLayout.ungrouped(4, 5)
        return {f"{scale:g}": cls(layout, scale) for scale in (1.0, 4.0)}

    @override
    def weaker(self, factor: float) -> Self:
        return msgspec.structs.replace(self, scale=self.scale / factor if self.scale else factor)


class CellTriples(CellPairs, frozen=True, tag="cell-triples"):
    """Sums of (1 - r)^2, 2 r (1 - r) and r^2 of values r per key, which tell their variance at no further cost.

    Parameters, errors and the record are those of `CellPairs`.

    Notes
    -----
    Privacy cost: that of `CellPairs`. The three parts (Bernstein polynomials) are at least 0 and sum up to 1 like its
    two, exactly, on the grid of squares: a replacement changes all sums by 2. Noise of a scale is on the same grid.
    """

    parts: ClassVar[ValueParts] = BERNSTEIN
    unit: ClassVar[int] = UNIT**2
    resolution: ClassVar[float] = 1 / UNIT**2

    @override
    def parted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        rest = UNIT - values
        return np.stack([rest * rest, 2 * values * rest, values * values])

    @override
    def fits(self, question: KeyedHits) -> bool:
        return question.expected is not None and not question.beside
