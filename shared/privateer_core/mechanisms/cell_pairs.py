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
from privateer_core.mechanisms.mechanism import NO_KEY, Mechanism, keyed_records, parse_keyed
from privateer_core.mechanisms.named_symbol import HitTotal, PartTotal
from privateer_core.primitives.contributions import BERNSTEIN, BITS, CellHits, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import DiscreteLaplace

REPORT: Final = np.dtype([("key", "<u4"), ("value", "<u2")])
UNIT: Final = 65535
"""Grid points of a value in [0, 1]."""
SENSITIVITY: Final = 2
"""L1 change of all sums when a person is replaced: parts that sum up to 1 move from one cell to another, in all by 2;
within a cell they change by no more."""


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
    kept: ClassVar[type[HitTotal] | type[PartTotal]] = HitTotal

    layout: SlotLayout
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.scale < 1e6 or self.layout.groups != 1:
            raise SpecError("there is no such noise", field="scale", remedy="use what the spec promises")

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the mechanism whose releases are epsilon-private."""
        return cls(question.layout, math.ceil(SENSITIVITY * UNIT / Fraction(epsilon)) / UNIT)

    @property
    @override
    def released(self) -> Event | None:
        # One division of whole numbers, so that no rounding is above the promise.
        return Pure(SENSITIVITY * UNIT / self._laplace.scale) if self.scale else None

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.at_least(self.scale * UNIT)

    @property
    def noise(self) -> float:
        """Variance of what is added to each sum, in values."""
        return self._laplace.variance / UNIT**2 if self.scale else 0.0

    def randomize(self, contributions: KeyedValues, _: NoiseSource) -> NDArray[np.void]:
        """Return the records of n people as they are, values rounded to the grid; shape (n,), dtype ``message``."""
        return self.records(contributions)

    def records(self, contributions: KeyedValues) -> NDArray[np.void]:
        """Return what `randomize` does, which draws nothing."""
        return keyed_records(contributions, self.message, UNIT)

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        return parse_keyed(rows, self.message, self.layout.keys)

    def parted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the parts of values on the grid, (P, n), whose sum is the grid's unit."""
        return np.stack([UNIT - values, values])

    def empty(self) -> HitTotal | PartTotal:
        """Return the total of no reports, in grid units."""
        return HitTotal.empty(self.layout.keys, 1)

    @override
    def add(self, total: Any, reports: NDArray[np.void]) -> Any:
        keyed, people = reports[reports["key"] != NO_KEY], len(reports)
        keys = keyed["key"].astype(np.int64)
        # Sums of floating-point numbers are exact up to 2^53.
        parts = [np.bincount(keys, part, self.layout.keys) for part in self._parts_of(keyed)]
        cells = np.rint(parts).astype(np.int64)[..., None]
        return total.merged(self.kept.of(people, cells, np.full(cells.shape[1:], people)))

    def _parts_of(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """Return what records add to the sums of their keys, (P, n)."""
        return self.parted(records["value"].astype(np.int64))

    @override
    def release(self, total: Any, noise: NoiseSource) -> CellHits:
        size = total.cells.size
        return self._released(total, self._laplace.draw(size, noise) if self.scale else np.zeros(size, np.int64))

    def _released(self, total: Any, drawn: NDArray[np.int64]) -> CellHits:
        # The last part's noise is the first that was drawn.
        cells = total.cells + drawn.reshape(total.cells.shape)[::-1]
        facts = {"reports": total.reports, "counts": total.counts, "gain": 1.0, "other": 0.0, "noise": self.noise}
        return CellHits.of_parts(self.parts, cells, UNIT, **facts)

    @override
    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> CellHits:
        return self._simulated(self.add(self.empty(), self.records(contributions)), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: np.random.Generator) -> CellHits:
        """Simulate people counted by key, group and value 0 or 1, (keys, 1, 2), and people without a key."""
        cells = np.moveaxis(counts @ self.parted(np.array([0, UNIT])).T, -1, 0)
        people = int(counts.sum()) + without
        return self._simulated(self.kept.of(people, cells, np.full(cells.shape[1:], people)), rng)

    def _simulated(self, total: Any, rng: np.random.Generator) -> CellHits:
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
    two, also on the grid, where two are rounded down and the third is the rest: a replacement changes all sums by 2.
    """

    parts: ClassVar[ValueParts] = BERNSTEIN
    kept: ClassVar[type[HitTotal] | type[PartTotal]] = PartTotal

    @override
    def parted(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        none, all_ = np.square(UNIT - values) // UNIT, np.square(values) // UNIT
        return np.stack([none, UNIT - none - all_, all_])

    @override
    def empty(self) -> PartTotal:
        return PartTotal.empty(self.parts.count, self.layout.keys, 1)

    @override
    def fits(self, question: KeyedHits) -> bool:
        return question.expected is not None and not question.beside
