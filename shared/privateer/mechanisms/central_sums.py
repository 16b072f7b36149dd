"""Keyed means with a trusted curator: records reach the server as they are, and its releases carry the noise."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.curator import RELEASED_MAX
from privateer.coins import Layout
from privateer.contributions import KeyedSums, KeyedValues
from privateer.errors import OutOfRange, SpecError
from privateer.sampling.entropy import NoiseSource
from privateer.sampling.normal import RoundedNormal

REPORT: Final = np.dtype([("slot", "<u4"), ("key", "<u4"), ("value", "<u2")])
UNIT: Final = 65535
"""Grid points of a value in [0, 1]; scores are in the same unit, -65535 to 65535."""
_NO_KEY: Final = (1 << 32) - 1


@dataclass(frozen=True)
class CentralTotal:
    """Integer sums over reports, scores in grid units; shapes as in `KeyedSums`."""

    reports: int
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    hits: NDArray[np.int64]


@dataclass(frozen=True)
class CentralSums:
    """Sums of scores 2 value - 1 per cell (key, group), and people per key, with normal noise of one deviation.

    Parameters
    ----------
    layout
        Keys and groups of the round; the slot decides the group, as under every trust model.
    deviation
        Of the noise, in scores; 0 under the trust model ``none``.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at sensitivity 2 for (sums, hits) together: hits are free, since a
    person's own score cannot change by 2 and their key as well. Counts by slot are public. Noise is rounded to the
    grid (`privateer.sampling.normal`), and drawn once, when the round is released.

    Raises
    ------
    SpecError
        If a release would hold more numbers than the calibration pays for.
    """

    layout: Layout
    standard_deviation: float

    def __post_init__(self) -> None:
        if self.layout.keys * (self.layout.groups + 1) > RELEASED_MAX:
            raise SpecError(
                f"a release would hold more than {RELEASED_MAX} numbers",
                field="experiment.horizon",
                remedy="lower the horizon",
            )

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return REPORT.itemsize

    def randomize(self, contributions: KeyedValues, _: NoiseSource) -> NDArray[np.void]:
        """Reports of n people as they are, values rounded to the grid; shape (n,), dtype `REPORT`."""
        reports = np.empty(len(contributions), dtype=REPORT)
        reports["slot"] = contributions.slots
        reports["key"] = np.where(contributions.keys >= 0, contributions.keys, _NO_KEY)
        reports["value"] = np.where(contributions.keys >= 0, np.rint(contributions.values * UNIT), 0)
        return reports

    def parse(self, rows: bytes) -> NDArray[np.void]:
        """Reports from their concatenated bytes.

        Raises
        ------
        OutOfRange
            If the bytes are not whole reports, or name a key that is none.
        """
        if len(rows) % REPORT.itemsize:
            raise OutOfRange("not a whole number of reports", remedy="send what the client library makes")
        reports = np.frombuffer(rows, dtype=REPORT)
        if np.any((reports["key"] >= self.layout.keys) & (reports["key"] != _NO_KEY)):
            raise OutOfRange("not a key of this round", remedy="send what the client library makes")
        return reports

    def empty(self) -> CentralTotal:
        """The total of no reports."""
        shape = (self.layout.keys, self.layout.groups)
        return CentralTotal(0, np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape[0], np.int64))

    def add(self, total: CentralTotal, reports: NDArray[np.void]) -> CentralTotal:
        """``total`` with ``reports`` (n,) counted in."""
        told = reports[reports["key"] != _NO_KEY]
        keys = told["key"].astype(np.int64)
        groups = self.layout.group(self.layout.hashes(told["slot"], keys), keys)
        sums, hits = self._summed(keys, groups, told["value"].astype(np.int64))
        counts = self.layout.count(reports["slot"])
        return self.merge(total, CentralTotal(len(reports), sums, counts, hits))

    def _summed(
        self, keys: NDArray[np.int64], groups: NDArray[np.int64], values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shape = (self.layout.keys, self.layout.groups)
        sums = np.zeros(shape, np.int64)
        np.add.at(sums, (keys, groups), 2 * values - UNIT)
        return sums, np.bincount(keys, minlength=shape[0])

    def merge(self, left: CentralTotal, right: CentralTotal) -> CentralTotal:
        """The total of two disjoint sets of reports."""
        return CentralTotal(
            left.reports + right.reports, left.sums + right.sums, left.counts + right.counts, left.hits + right.hits
        )

    def release(self, total: CentralTotal, noise: NoiseSource) -> KeyedSums:
        """What the learner may see; every call draws fresh noise, so a round is released once."""
        size = total.sums.size + len(total.hits)
        drawn = self._normal.draw(size, noise) if self.standard_deviation else np.zeros(size, np.int64)
        return self._released(total, drawn)

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation * UNIT)

    def _released(self, total: CentralTotal, drawn: NDArray[np.int64]) -> KeyedSums:
        cells = total.sums.size
        sums = (total.sums + drawn[:cells].reshape(total.sums.shape)) / UNIT
        hits = total.hits + drawn[cells:] / UNIT
        return KeyedSums(total.reports, sums, total.counts, hits, 1.0, 1.0, 0.0, self.standard_deviation**2)

    def simulate(self, contributions: KeyedValues, rng: np.random.Generator) -> KeyedSums:
        """Draw a release without hashing every (report, key); exact in law when slots' hashes are independent."""
        told = contributions.keys >= 0
        keys, groups = contributions.keys[told], contributions.groups[told]
        values = np.rint(contributions.values[told] * UNIT).astype(np.int64)
        sums, _ = self._summed(keys, groups, values)
        own = np.bincount(keys * self.layout.groups + groups, minlength=sums.size).reshape(sums.shape)
        return self._simulated(sums, own, len(contributions), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: np.random.Generator) -> KeyedSums:
        """As `simulate`, for people counted by key, group and value 0 or 1, (keys, groups, 2), and those without."""
        sums, own = UNIT * (counts[..., 1] - counts[..., 0]), counts.sum(axis=-1)
        return self._simulated(sums, own, int(own.sum()) + without, rng)

    def _simulated(
        self, sums: NDArray[np.int64], own: NDArray[np.int64], people: int, rng: np.random.Generator
    ) -> KeyedSums:
        hits = own.sum(axis=1)
        counts = own + rng.multinomial(people - hits, self.layout.shares)
        drawn = np.rint(rng.normal(0.0, 1.0, sums.size + len(hits)) * self.standard_deviation * UNIT).astype(np.int64)
        return self._released(CentralTotal(people, sums, counts, hits), drawn)
