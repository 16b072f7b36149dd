"""Keyed means with a trusted curator: records reach the server as they are, and its releases carry the noise."""

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event, Gaussian, Pure
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import NO_KEY, UNIT, KeyedTotal, Mechanism, keyed_records, parse_keyed
from privateer_core.primitives.contributions import KeyedSums, KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import RoundedNormal, sampling_cost
from privateer_core.sampling.response import rounded

REPORT: Final = np.dtype([("slot", "<u4"), ("key", "<u4"), ("value", "<u2")])
SENSITIVITY: Final = 2.0
"""L2 change of (sums of scores, people per cell) when a person is replaced. A score moves from -1 to 1 in its cell,
by 2, or one cell loses at most 1 of each and another gains as much: sqrt(4)."""
ABSOLUTE_SENSITIVITY: Final = 4
"""L1 change of the same."""
RELEASED_MAX: Final = 1 << 20
"""Numbers in a release, at most."""
SAMPLING: Final = sampling_cost(RELEASED_MAX)
"""What drawing normal noise adds to delta, in all."""


class CentralSums(Mechanism, frozen=True, tag="central-sums"):
    """Sums of scores 2 value - 1 and people, per cell (key, group), with noise of one scale.

    Parameters
    ----------
    layout
        Keys and groups of the round; public coins decide the group, as under every trust model.
    standard_deviation
        Standard deviation of normal noise, in scores; 0: the noise is not normal.
    scale
        Scale of discrete Laplace noise, in scores, for promises of delta 0; 0: the noise is not Laplace. At most one of
        both is above 0.

    Raises
    ------
    SpecError
        If a release would hold more numbers than the calibration pays for, or there is no such noise.

    Notes
    -----
    Privacy cost: that of normal noise at sensitivity 2 for (sums, hits) together. Hits are free, since a person's own
    score cannot change by 2 and their key as well. With discrete Laplace noise, which is drawn exactly, the L1
    sensitivity 4 divided by the scale. Counts by coins are public. Noise is drawn once, when the round is released.
    """

    message: ClassVar = REPORT

    layout: Layout
    standard_deviation: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        one = not (self.standard_deviation and self.scale)
        if not (one and 0 <= self.standard_deviation < 1e6 and 0 <= self.scale < 1e6):
            raise SpecError("there is no such noise", field="standard_deviation", remedy="use what the spec promises")
        if 2 * self.layout.keys * self.layout.groups > RELEASED_MAX:
            raise SpecError(
                f"a release would hold more than {RELEASED_MAX} numbers",
                field="experiment.horizon",
                remedy="lower the horizon",
            )

    @classmethod
    def calibrated(cls, question: KeyedMeans, epsilon: float, delta: float, allotment: Allotment | None = None) -> Self:
        """Return the mechanism whose releases keep a promise: Laplace noise where delta is 0, else normal noise.

        With an ``allotment``, which says what one of several reports of a person may cost, they keep that.

        Raises
        ------
        SpecError
            If ``delta`` is too small for what the sampler of normal noise is certified for.
        """
        if delta == 0:
            each = Fraction(allotment.pure if allotment else epsilon)
            return cls(question.layout, 0.0, math.ceil(ABSOLUTE_SENSITIVITY * UNIT / each) / UNIT)
        if allotment:
            return cls(question.layout, SENSITIVITY * allotment.standard_deviation)
        return cls(question.layout, published_standard_deviation(epsilon, delta - SAMPLING, SENSITIVITY))

    @property
    @override
    def released(self) -> Event | None:
        if self.scale:
            # One division of whole numbers, so that no rounding is above the promise.
            return Pure(ABSOLUTE_SENSITIVITY * UNIT / self._laplace.scale)
        return Gaussian(self.standard_deviation, SENSITIVITY) if self.standard_deviation else None

    @property
    @override
    def sampling(self) -> float:
        return SAMPLING if self.standard_deviation else 0.0

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> NDArray[np.void]:
        """Return the records of n people, values rounded to the grid at random; shape (n,), dtype `REPORT`."""
        reports = keyed_records(contributions, REPORT, noise)
        reports["slot"] = contributions.coins
        return reports

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        return parse_keyed(rows, REPORT, self.layout.keys)

    def empty(self) -> KeyedTotal:
        """Return the total of no reports; scores are in grid units, -65535 to 65535."""
        return KeyedTotal.empty(self.layout.keys, self.layout.groups, by_group=True)

    @override
    def add(self, total: KeyedTotal, reports: NDArray[np.void]) -> KeyedTotal:
        keyed = reports[reports["key"] != NO_KEY]
        keys = keyed["key"].astype(np.int64)
        groups = self.layout.group(self.layout.hashes(keyed["slot"], keys), keys)
        sums, hits = self._summed(keys, groups, keyed["value"].astype(np.int64))
        return total.merged(KeyedTotal(len(reports), sums, self.layout.count(reports["slot"]), hits))

    def _summed(
        self, keys: NDArray[np.int64], groups: NDArray[np.int64], values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shape = (self.layout.keys, self.layout.groups)
        sums = np.zeros(shape, np.int64)
        np.add.at(sums, (keys, groups), 2 * values - UNIT)
        hits = np.bincount(keys * shape[1] + groups, minlength=sums.size)
        return sums, hits.reshape(shape)

    @override
    def release(self, total: KeyedTotal, noise: NoiseSource) -> KeyedSums:
        size = total.sums.size + total.hits.size
        if self.scale:
            return self._released(total, self._laplace.draw(size, noise))
        drawn = self._normal.draw(size, noise) if self.standard_deviation else np.zeros(size, np.int64)
        return self._released(total, drawn)

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation * UNIT)

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.at_least(self.scale * UNIT)

    def _released(self, total: KeyedTotal, drawn: NDArray[np.int64]) -> KeyedSums:
        cells = total.sums.size
        sums = (total.sums + drawn[:cells].reshape(total.sums.shape)) / UNIT
        # Whole numbers are added before they are divided: a sum of floats would show last digits of both parts.
        hits = (UNIT * total.hits + drawn[cells:].reshape(total.hits.shape)) / UNIT
        noise = self._laplace.variance / UNIT**2 if self.scale else self.standard_deviation**2
        return KeyedSums(total.reports, sums, total.counts, hits, 1.0, 1.0, 0.0, noise)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedSums:
        """Draw a release without hashing every (report, key); exact when the coins' hashes are independent."""
        has = contributions.keys >= 0
        keys, groups = contributions.keys[has], contributions.groups[has]
        sums = self._summed(keys, groups, rounded(contributions.values[has], UNIT, rng))
        return self._simulated(*sums, len(contributions), rng)

    def simulate_counts(self, counts: NDArray[np.int64], without: int, rng: "np.random.Generator") -> KeyedSums:
        """Simulate people counted by key, group and value 0 or 1, (keys, groups, 2), and people without a key."""
        sums, own = UNIT * (counts[..., 1] - counts[..., 0]), counts.sum(axis=-1)
        return self._simulated(sums, own, int(own.sum()) + without, rng)

    def _simulated(
        self, sums: NDArray[np.int64], own: NDArray[np.int64], people: int, rng: "np.random.Generator"
    ) -> KeyedSums:
        counts = own + rng.multinomial(people - own.sum(axis=1), self.layout.shares)
        size = 2 * sums.size
        if self.scale:
            drawn = self._laplace.simulate(size, rng)
        else:
            drawn = np.rint(rng.normal(0.0, 1.0, size) * self.standard_deviation * UNIT).astype(np.int64)
        return self._released(KeyedTotal(people, sums, counts, own), drawn)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        normal = {f"normal-{sigma:g}": cls(Layout.small(), sigma) for sigma in (0.0, 2.0, 12.0)}
        return normal | {"laplace-4": cls(Layout.small(), 0.0, 4.0)}

    @override
    def weaker(self, factor: float) -> Self:
        if self.scale:
            return msgspec.structs.replace(self, scale=self.scale / factor)
        less = self.standard_deviation / factor if self.standard_deviation else factor
        return msgspec.structs.replace(self, standard_deviation=less)
