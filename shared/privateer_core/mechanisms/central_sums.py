"""Keyed means with a trusted curator: the server receives exact records, and adds noise to its releases."""

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event, Gaussian, Pure
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.arrays import Ints, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import (
    NO_KEY,
    UNIT,
    KeyedTotal,
    Mechanism,
    build_keyed_records,
    parse_keyed_records,
)
from privateer_core.primitives.contributions import KeyedSums, KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import RoundedNormal, sampling_cost
from privateer_core.sampling.randomness import NoiseSource, round_stochastically

REPORT: Final = np.dtype([("slot", "<u4"), ("key", "<u4"), ("value", "<u2")])
SENSITIVITY: Final = 2.0
"""L2 change of (sums of scores, participants per cell) when a participant is replaced. A score moves from -1 to 1 in
its cell, by 2, or one cell loses at most 1 of each and another cell gains at most 1: sqrt(4)."""
ABSOLUTE_SENSITIVITY: Final = 4
"""L1 change of (sums of scores, participants per cell) when a participant is replaced."""
RELEASED_NUMBERS_MAX: Final = 1 << 20
"""Largest number of numbers in a release."""
SAMPLING_COST: Final = sampling_cost(RELEASED_NUMBERS_MAX)
"""Delta that the sampler of normal noise adds to a release."""


class CentralSums(Mechanism, frozen=True, tag="central-sums"):
    """Sums of scores 2 value - 1 and participants, per cell (key, group), with noise of one scale.

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
        If a release would hold more numbers than the calibration allows, or there is no such noise.

    Notes
    -----
    Privacy cost: that of normal noise at sensitivity 2 for (sums, hits) together. Hits are free, since a participant
    cannot change the score by 2 and the key, too. With discrete Laplace noise, which is drawn exactly, the L1
    sensitivity 4 divided by the scale. Counts by coins are public. Noise is drawn once, when the round is released.
    """

    message: ClassVar = REPORT

    layout: Layout
    standard_deviation: float = 0.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        has_one_noise = not (self.standard_deviation and self.scale)
        if not (has_one_noise and 0 <= self.standard_deviation < 1e6 and 0 <= self.scale < 1e6):
            detail = "must be from 0 to below 1e6, as scale must, and one of the two must be 0"
            raise SpecError(detail, field="standard_deviation", remedy="calibrate it to the spec's promise")
        if 2 * self.layout.keys * self.layout.groups > RELEASED_NUMBERS_MAX:
            detail = f"a release would hold more than {RELEASED_NUMBERS_MAX} numbers"
            raise SpecError(detail, field="experiment.horizon", remedy="lower the horizon")

    @classmethod
    def calibrated(cls, question: KeyedMeans, epsilon: float, delta: float, allotment: Allotment | None = None) -> Self:
        """Return the mechanism whose releases keep a promise: Laplace noise if delta is 0, else normal noise.

        With an ``allotment``, the budget of one of several reports of a participant, they keep that. A ``delta``
        that is too small for the certified range of the sampler of normal noise is refused.
        """
        if delta == 0:
            report_epsilon = Fraction(allotment.pure if allotment else epsilon)
            return cls(question.layout, 0.0, math.ceil(ABSOLUTE_SENSITIVITY * UNIT / report_epsilon) / UNIT)
        if allotment:
            return cls(question.layout, SENSITIVITY * allotment.standard_deviation)
        return cls(question.layout, published_standard_deviation(epsilon, delta - SAMPLING_COST, SENSITIVITY))

    @property
    @override
    def release_event(self) -> Event | None:
        """Event of a release by the kind of its noise; None without noise."""
        if self.scale:
            # One division of whole numbers, so that no rounding is above the promise.
            return Pure(ABSOLUTE_SENSITIVITY * UNIT / self._laplace.scale)
        return Gaussian(self.standard_deviation, SENSITIVITY) if self.standard_deviation else None

    @property
    @override
    def sampling(self) -> float:
        return SAMPLING_COST if self.standard_deviation else 0.0

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        """Return the records of n participants, values rounded to the grid at random; shape (n,), dtype `REPORT`."""
        reports = build_keyed_records(contributions, REPORT, noise)
        reports["slot"] = contributions.coins
        return reports

    @override
    def parse(self, rows: bytes) -> Records:
        return parse_keyed_records(rows, REPORT, self.layout.keys)

    def empty(self) -> KeyedTotal:
        """Return the total of no reports; scores are in grid units, -65535 to 65535."""
        return KeyedTotal.empty(self.layout.keys, self.layout.groups, by_group=True)

    @override
    def add(self, total: KeyedTotal, reports: Records) -> KeyedTotal:
        """Return ``total`` with scores and participants of the records added by key and group of their coins."""
        keyed = reports[reports["key"] != NO_KEY]
        keys = keyed["key"].astype(np.int64)
        groups = self.layout.find_groups(self.layout.hashes(keyed["slot"], keys), keys)
        sums, hits = self._sum_cells(keys, groups, keyed["value"].astype(np.int64))
        return total.merge_with(KeyedTotal(len(reports), sums, self.layout.group_sizes(reports["slot"]), hits))

    def _sum_cells(self, keys: Ints, groups: Ints, values: Ints) -> tuple[Ints, Ints]:
        """Return the sums of scores, in grid units, and the numbers of participants, (keys, groups) each."""
        shape = (self.layout.keys, self.layout.groups)
        sums = np.zeros(shape, np.int64)
        np.add.at(sums, (keys, groups), 2 * values - UNIT)
        hits = np.bincount(keys * shape[1] + groups, minlength=sums.size)
        return sums, hits.reshape(shape)

    @override
    def release(self, total: KeyedTotal, noise: NoiseSource) -> KeyedSums:
        """Return the release of a total with freshly drawn noise in every sum and count."""
        size = total.sums.size + total.hits.size
        if self.scale:
            return self._build_release(total, self._laplace.draw(size, noise))
        noise_steps = self._normal.draw(size, noise) if self.standard_deviation else np.zeros(size, np.int64)
        return self._build_release(total, noise_steps)

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation * UNIT)

    @cached_property
    def _laplace(self) -> DiscreteLaplace:
        return DiscreteLaplace.from_min_scale(self.scale * UNIT)

    def _build_release(self, total: KeyedTotal, noise_steps: Ints) -> KeyedSums:
        """Return the release of a total with given noise, in grid units: of all sums, then of all counts."""
        cells = total.sums.size
        sums = (total.sums + noise_steps[:cells].reshape(total.sums.shape)) / UNIT
        # Whole numbers are added before they are divided: a sum of floats would reveal last digits of both terms.
        hits = (UNIT * total.hits + noise_steps[cells:].reshape(total.hits.shape)) / UNIT
        noise = self._laplace.variance / UNIT**2 if self.scale else self.standard_deviation**2
        return KeyedSums(total.reports, sums, total.counts, hits, 1.0, 1.0, 0.0, noise)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> KeyedSums:
        """Draw a release without hashing every (report, key); exact when the coins' hashes are independent."""
        has_key = contributions.keys >= 0
        keys, groups = contributions.keys[has_key], contributions.groups[has_key]
        sums = self._sum_cells(keys, groups, round_stochastically(contributions.values[has_key], UNIT, rng))
        return self._simulate_release(*sums, len(contributions), rng)

    def simulate_counts(self, counts: Ints, n_keyless: int, rng: "np.random.Generator") -> KeyedSums:
        """Simulate the release of participants counted by key, group and value, (keys, groups, 2), or without a key."""
        sums, members = UNIT * (counts[..., 1] - counts[..., 0]), counts.sum(axis=-1)
        return self._simulate_release(sums, members, int(members.sum()) + n_keyless, rng)

    def _simulate_release(
        self, sums: Ints, members: Ints, n_participants: int, rng: "np.random.Generator"
    ) -> KeyedSums:
        """Draw the release of exact sums and members, (keys, groups); coins group all other participants."""
        counts = members + rng.multinomial(n_participants - members.sum(axis=1), self.layout.shares)
        size = 2 * sums.size
        if self.scale:
            noise_steps = self._laplace.simulate(size, rng)
        else:
            noise_steps = np.rint(rng.normal(0.0, 1.0, size) * self.standard_deviation * UNIT).astype(np.int64)
        return self._build_release(KeyedTotal(n_participants, sums, counts, members), noise_steps)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        normal = {f"normal-{sigma:g}": cls(Layout.example(), sigma) for sigma in (0.0, 2.0, 12.0)}
        return normal | {"laplace-4": cls(Layout.example(), 0.0, 4.0)}

    @override
    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times less noise, or with some if it has none."""
        if self.scale:
            return msgspec.structs.replace(self, scale=self.scale / factor)
        standard_deviation = self.standard_deviation / factor if self.standard_deviation else factor
        return msgspec.structs.replace(self, standard_deviation=standard_deviation)
