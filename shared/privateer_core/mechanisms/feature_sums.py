"""Sums of values and participants by the answers to several questions at once, with a trusted curator."""

import math
from functools import cached_property
from typing import Any, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import published_standard_deviation
from privateer_core.arrays import Ints, Records
from privateer_core.errors import InputError, SpecError
from privateer_core.mechanisms.mechanism import Mechanism, VectorTotal, check_valid, index_type, view_rows
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.clipping import COORDINATES_MAX
from privateer_core.primitives.contributions import FeatureValues
from privateer_core.primitives.questions import FeatureMeans
from privateer_core.sampling.normal import (
    EPSILON_MAX,
    STANDARD_DEVIATION_MAX,
    STANDARD_DEVIATION_MIN,
    RoundedNormal,
    sampling_cost,
)
from privateer_core.sampling.randomness import NoiseSource, RandomSource, round_to_integers

GRID: Final = 1 << 12
"""Steps of a value of 1 in a record."""
SCALE: Final = 1 << 10
"""Norm of the scales of values that a calibration chooses, before these are rounded to whole numbers."""
_SCALE_MAX: Final = 1 << 16
_MIN_COUNT_RATIO: Final = 1 / 9
"""Smallest ratio of the squared scales of a question's counts and values."""
_ROUNDING: Final = 1 + 2.0**-40
"""Factor that covers rounding errors of floating point in a sensitivity."""
_BLOCK_NUMBERS: Final = 1 << 21
"""Number of answers counted at a time, to limit memory."""


class FeatureSums(Mechanism, frozen=True, tag="feature-sums"):
    """A curator's sums of values by arm and answer, and counts of participants by answer, with normal noise.

    A record has the arm, an answer to every question, and the value. The curator makes the participant's vector from
    it, so that no device can move the sums further than another: at the arm and each answer stands the value times the
    scale of the question's values, and at each answer the scale of its counts.

    Parameters
    ----------
    arms
        Number of arms.
    sizes
        Number of answers to each question.
    value_scales, count_scales
        For each question, what a value of 1, and a participant, add to the sums, in whole numbers; 0: nothing.
    counts_arms
        Whether participants are counted by arm, too.
    below
        Absolute lower bound of values, above 0 and at most 1. The upper bound is 1.
    standard_deviation
        Standard deviation of the noise in each sum, in steps of a value with scale 1; 0: no noise.

    Raises
    ------
    SpecError
        If there are no such sums, or no such noise.

    Notes
    -----
    Privacy cost: that of the Gaussian mechanism at this sensitivity, plus `sampling_cost` in delta. Let two
    participants have the values v and w, both in [-b, 1], and let m_q and n_q be the scales of question q. If they have
    the same arm and the same answer to q, their vectors differ there by m_q (v - w); otherwise the squared distance is
    at most m_q^2 (v^2 + w^2) + 2 n_q^2. If v w >= 0, the second is larger, and at most 2 (m_q^2 + n_q^2). Otherwise
    (v - w)^2 = v^2 + w^2 + 2 |v w|: both grow with |v| and |w|, up to 1 and b. So the squared distance is at most the
    larger of two sums over q: of 2 (m_q^2 + n_q^2), and of m_q^2 (1 + b^2) + 2 max(n_q^2, b m_q^2). Participants with
    different answers everywhere attain the first. If n_q^2 <= b m_q^2 for all q, participants with the same answers
    attain the second.
    """

    arms: int
    sizes: tuple[int, ...]
    value_scales: tuple[int, ...]
    count_scales: tuple[int, ...]
    counts_arms: bool = False
    below: float = 1.0
    standard_deviation: float = 0.0

    def __post_init__(self) -> None:
        scales = (*self.value_scales, *self.count_scales)
        is_possible = len(self.sizes) == len(self.value_scales) == len(self.count_scales) and self.arms >= 1
        is_possible = is_possible and all(size >= 1 for size in self.sizes) and sum(self.value_scales) > 0
        is_possible = is_possible and all(0 <= scale <= _SCALE_MAX for scale in scales)
        if not (is_possible and self.coordinates <= COORDINATES_MAX):
            raise SpecError("there are no such sums", field="sizes", remedy="fetch the policy again")
        if not 0 < self.below <= 1:
            raise SpecError("must be above 0 and at most 1", field="below", remedy="choose another value")
        has_noise = STANDARD_DEVIATION_MIN <= self.standard_deviation <= STANDARD_DEVIATION_MAX
        if not (self.standard_deviation == 0 or has_noise):
            detail = f"must be 0, or {STANDARD_DEVIATION_MIN:g} to 2^40"
            raise SpecError(detail, field="standard_deviation", remedy="choose another epsilon")

    @classmethod
    def without_noise(cls, question: FeatureMeans) -> Self:
        """Return the mechanism that adds no noise."""
        ones = (1,) * len(question.sizes)
        return cls(question.arms, question.sizes, ones, ones, question.counts_arms, question.below)

    @classmethod
    def calibrated(cls, question: FeatureMeans, epsilon: float, delta: float) -> Self:
        """Return the mechanism that makes the sums private, sampler included; refuse an uncertified promise."""
        if not epsilon <= EPSILON_MAX:
            raise SpecError(f"must be at most {EPSILON_MAX:g}", field="epsilon", remedy="choose a smaller epsilon")
        scaled = cls._scale_by_shares(question)
        deviation = published_standard_deviation(epsilon, delta - scaled._sampling_cost, scaled.sensitivity)
        return msgspec.structs.replace(scaled, standard_deviation=deviation)

    @classmethod
    def with_noise(cls, question: FeatureMeans, standard_deviation: float) -> Self:
        """Return the mechanism with noise of this standard deviation, in sensitivities."""
        scaled = cls._scale_by_shares(question)
        return msgspec.structs.replace(scaled, standard_deviation=standard_deviation * scaled.sensitivity)

    @classmethod
    def _scale_by_shares(cls, question: FeatureMeans) -> Self:
        """Return the mechanism with scales by the question's shares, before noise is chosen.

        Counts are free up to a ratio of squared scales at which participants with different answers are as far apart as
        participants with the same answers and opposite values. A single answer needs no count, but is counted by arm.
        """
        scales, b = np.sqrt(question.shares), question.below
        has_counts = (np.array(question.sizes) > 1) | question.counts_arms
        counted_share = float(question.shares[has_counts].sum())
        free_ratio = min(b, ((1 + b) ** 2 / 2 - 1) / counted_share) if counted_share else 0.0
        # A question that some coins choose has a scale.
        value_scales = np.maximum(np.rint(SCALE * scales), scales > 0)
        count_scales = np.rint(math.sqrt(max(_MIN_COUNT_RATIO, free_ratio)) * value_scales) * has_counts
        values, counts = (tuple(int(scale) for scale in row) for row in (value_scales, count_scales))
        return cls(question.arms, question.sizes, values, counts, question.counts_arms, question.below)

    @property
    def _n_answers(self) -> int:
        return sum(self.sizes)

    @property
    def coordinates(self) -> int:
        """Number of sums: of values by arm and answer, then of participants by answer, or by arm and answer."""
        return self._n_answers * (self.arms + (self.arms if self.counts_arms else 1))

    @property
    def step(self) -> float:
        """Step of the sums, in values with scale 1."""
        return 1 / GRID

    @property
    def value_noise(self) -> float:
        """Variance of the noise in a sum of values, if its question was the only one."""
        return (self.standard_deviation * self.step) ** 2 / sum(scale**2 for scale in self.value_scales)

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance of two participants' vectors, in steps."""
        b, apart, opposite = self._min_value / GRID, 0, 0.0
        for value_scale, count_scale in zip(self.value_scales, self.count_scales, strict=True):
            values, counts = value_scale**2, count_scale**2
            apart += 2 * (values + counts)
            opposite += values * (1 + b * b) + 2 * max(counts, b * values)
        return GRID * math.sqrt(max(apart, opposite)) * _ROUNDING

    @property
    def _min_value(self) -> int:
        """The absolute lower bound of a record's value."""
        return math.ceil(self.below * GRID)

    @property
    def _sampling_cost(self) -> float:
        return sampling_cost(self.coordinates)

    @property
    @override
    def sampling(self) -> float:
        return self._sampling_cost if self.standard_deviation else 0.0

    @property
    @override
    def release_event(self) -> Event | None:
        return Gaussian(self.standard_deviation, self.sensitivity) if self.standard_deviation else None

    @cached_property
    def _normal(self) -> RoundedNormal:
        return RoundedNormal(self.standard_deviation)

    @cached_property
    def _record(self) -> np.dtype[Any]:
        answer = index_type(max(self.sizes))
        return np.dtype([("arm", index_type(self.arms)), ("value", "<i2"), ("answers", answer, (len(self.sizes),))])

    @property
    @override
    def report_size(self) -> int:
        return self._record.itemsize

    def randomize(self, contributions: FeatureValues, noise: NoiseSource) -> Records:
        """Return the records of n participants, values clipped and rounded at random; shape (n,)."""
        return self._records(contributions, noise)

    def _records(self, contributions: FeatureValues, source: RandomSource) -> Records:
        values = contributions.values
        if values.shape != contributions.arms.shape or not np.isfinite(values).all():
            raise InputError("must be a finite number", field="value", remedy="send what the experiment asks for")
        records = np.empty(len(contributions), self._record)
        records["arm"], records["answers"] = contributions.arms, contributions.answers
        records["value"] = round_to_integers(GRID * np.clip(values, -self.below, 1.0), source)
        return records

    @override
    def parse(self, rows: bytes) -> Records:
        records = view_rows(rows, self._record)
        check_valid(not np.any(records["arm"] >= self.arms), "not an arm of this round")
        check_valid(not np.any(records["answers"] >= np.array(self.sizes)), "not an answer to a question of this round")
        values = records["value"]
        check_valid(not np.any((values < -self._min_value) | (values > GRID)), "a value out of its bounds")
        return records

    @override
    def empty(self) -> VectorTotal:
        return VectorTotal(0, np.zeros(self.coordinates, np.int64))

    @override
    def add(self, total: VectorTotal, reports: Records) -> VectorTotal:
        return total.merge_with(VectorTotal(len(reports), self._sum_records(reports)))

    def _sum_records(self, records: Records) -> Ints:
        """Return the sum of the vectors of records, (coordinates,)."""
        sums, n_answers = np.zeros(self.coordinates, np.int64), self._n_answers
        starts = np.cumsum((0, *self.sizes[:-1]))
        value_scales, count_scales = np.array(self.value_scales), np.array(self.count_scales)
        for block in np.array_split(records, max(1, len(records) * len(starts) // _BLOCK_NUMBERS)):
            answers, offsets = block["answers"] + starts, block["arm"].astype(np.int64)[:, None] * n_answers
            np.add.at(sums, answers + offsets, value_scales * block["value"].astype(np.int64)[:, None])
            counted = answers + self.arms * n_answers + offsets * self.counts_arms
            np.add.at(sums, counted, np.broadcast_to(GRID * count_scales, counted.shape))
        return sums

    @override
    def release(self, total: VectorTotal, noise: NoiseSource) -> VectorSums:
        count = len(total.sums)
        return self._build_release(
            total, self._normal.draw(count, noise) if self.standard_deviation else np.zeros(count, np.int64)
        )

    def _build_release(self, total: VectorTotal, noise: Ints) -> VectorSums:
        variance = (self.standard_deviation**2 + 1 / 12) * self.step**2 if self.standard_deviation else 0.0
        return VectorSums(total.reports, np.asarray((total.sums + noise) * self.step), variance)

    @override
    def simulate(self, contributions: FeatureValues, rng: "np.random.Generator") -> VectorSums:
        total = self.add(self.empty(), self._records(contributions, rng))
        noise = np.rint(rng.normal(0, 1, len(total.sums)) * self.standard_deviation).astype(np.int64)
        return self._build_release(total, noise)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return instances with usual and with rare values, and one without noise that counts by arm."""
        sizes, scales = (1, 3, 2), ((6, 5, 4), (0, 5, 3))
        usual = cls(2, sizes, *scales, standard_deviation=30_000.0)
        rare = cls(2, sizes, *scales, below=0.05, standard_deviation=25_000.0)
        return {"usual": usual, "rare": rare, "exact": cls(2, sizes, (1, 1, 1), (1, 1, 1), counts_arms=True)}

    @override
    def with_less_noise(self, factor: float) -> Self:
        standard_deviation = self.standard_deviation / factor if self.standard_deviation else factor * GRID
        return msgspec.structs.replace(self, standard_deviation=standard_deviation)
