"""Hits of a few keys with a trusted curator: pairs of sums, whose noise is the same whatever the values are."""

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import NO_KEY, Mechanism, keyed_records, parse_keyed
from privateer_core.mechanisms.named_symbol import HitTotal
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import DiscreteLaplace

REPORT: Final = np.dtype([("key", "<u4"), ("value", "<u2")])
UNIT: Final = 65535
"""Grid points of a value in [0, 1]."""
SENSITIVITY: Final = 2
"""L1 change of all pairs when a person is replaced: value and its rest move from one cell to another, in all by 2, or
from one to the other within a cell."""


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
        """Return the records of n people as they are, values rounded to the grid; shape (n,), dtype `REPORT`."""
        return keyed_records(contributions, REPORT, UNIT)

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        return parse_keyed(rows, REPORT, self.layout.keys)

    def empty(self) -> HitTotal:
        """Return the total of no reports; hits are in grid units."""
        return HitTotal.empty(self.layout.keys, 1)

    @override
    def add(self, total: HitTotal, reports: NDArray[np.void]) -> HitTotal:
        keyed = reports[reports["key"] != NO_KEY]
        positive = np.zeros((self.layout.keys, 1), np.int64)
        np.add.at(positive[:, 0], keyed["key"], keyed["value"])
        hits = UNIT * np.bincount(keyed["key"], minlength=self.layout.keys)[:, None]
        counts = np.full((self.layout.keys, 1), len(reports))
        return total.merged(HitTotal(len(reports), positive, hits, counts))

    @override
    def release(self, total: HitTotal, noise: NoiseSource) -> CellHits:
        size = 2 * total.hits.size
        return self._released(total, self._laplace.draw(size, noise) if self.scale else np.zeros(size, np.int64))

    def _released(self, total: HitTotal, drawn: NDArray[np.int64]) -> CellHits:
        more, less = drawn.reshape(2, *total.hits.shape)
        # Whole numbers are added before they are divided: a sum of floats would show last digits of both parts.
        positive, hits = (total.positive + more) / UNIT, (total.hits + more + less) / UNIT
        return CellHits(total.reports, positive, hits, total.counts, 1.0, 0.0, self.noise)

    @override
    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> CellHits:
        has = contributions.keys >= 0
        keys, values = contributions.keys[has], np.rint(contributions.values[has] * UNIT)
        positive = np.bincount(keys, values, self.layout.keys).astype(np.int64)[:, None]
        hits = UNIT * np.bincount(keys, minlength=self.layout.keys)[:, None]
        return self._simulated(positive, hits, len(contributions), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: np.random.Generator) -> CellHits:
        """Simulate people counted by key, group and value 0 or 1, (keys, 1, 2), and people without a key."""
        own = counts.sum(axis=-1)
        return self._simulated(UNIT * counts[..., 1], UNIT * own, int(own.sum()) + without, rng)

    def _simulated(
        self, positive: NDArray[np.int64], hits: NDArray[np.int64], people: int, rng: np.random.Generator
    ) -> CellHits:
        size = 2 * len(hits)
        drawn = self._laplace.simulate(size, rng) if self.scale else np.zeros(size, np.int64)
        return self._released(HitTotal(people, positive, hits, np.full(hits.shape, people)), drawn)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        layout = SlotLayout.ungrouped(4, 5)
        return {f"{scale:g}": cls(layout, scale) for scale in (1.0, 4.0)}

    @override
    def weaker(self, factor: float) -> Self:
        return msgspec.structs.replace(self, scale=self.scale / factor if self.scale else factor)
