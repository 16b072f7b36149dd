"""Second moments of few of many features with a trusted curator: a private choice of features, then one noisy block."""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Choice, Event, Gaussian, Repeated, Sequential
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.arrays import Array, Ints, NDArray
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, Total, check_valid, view_rows
from privateer_core.portable import round_up
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import SecondMoments
from privateer_core.sampling.laplace import draw_choice, simulate_choice
from privateer_core.sampling.normal import RoundedNormal, sampling_cost
from privateer_core.sampling.randomness import NoiseSource, RandomSource, round_stochastically

GRID: Final = 127
"""Steps of a coordinate in [0, 1]: it is a signed byte."""
UNIT: Final = 1024
"""Steps of a prediction."""
SENSITIVITY: Final = 2.0
"""L2 change of a block when a participant is replaced; see `ScreenedMoments`."""
_CHOICE_MIN: Final = 1e-9
"""Smallest epsilon of a choice: the sampler counts in 64 bits up to its scale."""
_CHOICE_BUDGET_SHARE: Final = 0.65
"""Share of the budget for choices, in units of concentrated privacy."""
_DIGITS: Final = 4
_BISECTION_STEPS: Final = 14
_BLOCK_NUMBERS: Final = 1 << 21
"""Number of coordinates summed at a time, to limit memory."""


class Moments(Total, frozen=True):
    """Exact sums of products of all pairs of coordinates, in grid units squared: the upper triangle, row by row."""

    sums: Ints


class ScreenedMoments(Mechanism, frozen=True, tag="screened-moments"):
    """A curator's noisy second moments of privately chosen features, from records rounded at random.

    A record z has a 1 for its arm among ``arms`` coordinates, then features, then the value, all in [-1, 1]. Only sums
    of products are stored, so that no record outlives its request. A release scores every other feature by the absolute
    sum of its products with the residual of the value, chooses ``screened`` features one after the other by the
    exponential mechanism (the same as the largest of scores with Gumbel noise; Durfee and Rogers 2019), and releases
    the second moments of arms, kept and chosen features, and the value, in a block.

    Parameters
    ----------
    ball
        The box of records.
    arms
        Number of coordinates of which one is 1.
    kept
        Indices of the features that are in the block in any case, in order.
    screened
        Number of further features to choose.
    predicted
        Coefficients of the arm's coordinate and each kept feature in the value's prediction, in 1/1024; empty: none.
    choice
        Epsilon of each choice; 0: the largest score is chosen.
    standard_deviation
        Standard deviation of the noise in a block, at sensitivity 2; 0: no noise.

    Raises
    ------
    SpecError
        If there is no such block or noise.

    Notes
    -----
    Privacy cost: ``screened`` choices, and one release with normal noise. With k features and the arm's 1, a record's
    coordinates have a norm of at most sqrt(k + 1). Divided by that, and beside the value, they are a vector z of norm
    sqrt(2) at most, and the record's part of the block is z z^T / sqrt 2. Replacing the record by z' moves the block by
    at most 2: the square of the distance is (|z|^4 + |z'|^4 - 2 <z, z'>^2) / 2. Replacing a record moves every score by
    at most twice a record's largest contribution, and of two scores one may rise and the other fall.
    """

    ball: Ball
    arms: int
    kept: tuple[int, ...]
    screened: int
    predicted: tuple[int, ...] = ()
    choice: float = 0.0
    standard_deviation: float = 0.0

    def __post_init__(self) -> None:
        indices = list(self.kept)
        is_possible = self.ball.norm == "max" and self.ball.bound == 1 and self.arms >= 1 and self.features >= 1
        is_possible = is_possible and indices == sorted(set(indices)) and all(0 <= k < self.features for k in indices)
        is_possible = is_possible and self.screened >= 0 and 1 <= len(indices) + self.screened <= self.features
        is_possible = is_possible and len(self.predicted) in (0, self.arms + len(indices))
        if not (is_possible and all(abs(k) <= UNIT for k in self.predicted)):
            raise SpecError("there is no such block", field="kept", remedy="fetch the policy again")
        has_noise = 0 <= self.standard_deviation < 1e6 and (self.choice == 0 or _CHOICE_MIN <= self.choice <= 16)
        if not (has_noise and (self.choice > 0) == (self.screened > 0 and self.standard_deviation > 0)):
            detail = "does not fit the numbers of kept and screened features, or is out of range"
            raise SpecError(detail, field="standard_deviation", remedy="calibrate it to the spec's promise")

    @classmethod
    def without_noise(cls, question: SecondMoments) -> Self:
        """Return the mechanism whose releases have no noise."""
        predicted = tuple(round(UNIT * prediction) for prediction in question.predicted)
        return cls(question.ball, question.arms, question.kept_features, question.screened, predicted)

    @classmethod
    def calibrated(cls, question: SecondMoments, epsilon: float, delta: float) -> Self:
        """Return the mechanism whose releases are (epsilon, delta)-private; refuse an uncertified promise."""
        exact = cls.without_noise(question)
        delta -= sampling_cost(exact.released_numbers)
        choice, standard_deviation = block_noise(epsilon, delta, question.screened)
        return msgspec.structs.replace(exact, choice=choice, standard_deviation=standard_deviation)

    @property
    def features(self) -> int:
        """Number of features of a record."""
        return self.ball.coordinates - self.arms - 1

    @property
    def width(self) -> int:
        """Number of coordinates of a block beside the value: arms, kept features and chosen features."""
        return self.arms + len(self.kept) + self.screened

    @property
    def released_numbers(self) -> int:
        """Number of released numbers of a block."""
        return (self.width + 1) * (self.width + 2) // 2

    @property
    @override
    def report_size(self) -> int:
        return self.ball.coordinates

    @property
    @override
    def release_event(self) -> Event | None:
        """Event of a release: the choices and the noisy block; None without noise."""
        if not self.standard_deviation:
            return None
        block = Gaussian(self.standard_deviation, SENSITIVITY)
        if not self.screened:
            return block
        choice = Choice(4 * self._max_score / self.scale)
        return Sequential((Repeated(choice, self.screened) if self.screened > 1 else choice, block))

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.released_numbers) if self.standard_deviation else 0.0

    @property
    def _max_score(self) -> int:
        """Largest contribution of a record to a score, in units of scores."""
        if not self.predicted:
            return GRID**2
        arms, kept_coefficients = self.predicted[: self.arms], self.predicted[self.arms :]
        return GRID**2 * (UNIT + max(map(abs, arms)) + sum(map(abs, kept_coefficients)))

    @property
    def score_scale(self) -> float:
        """Scale of the noise of a choice in the sum of products of a feature and the value."""
        return self.scale / self._max_score if self.choice else 0.0

    @property
    def product_variance(self) -> float:
        """Variance of the noise in the sum of products of a feature and the value; 0 without noise."""
        return float(self._noise_deviations[0, -1] / GRID**2) ** 2

    @cached_property
    def scale(self) -> int:
        """Scale of the exponential mechanism: two scores may move by twice a record's largest contribution each."""
        return math.ceil(4 * self._max_score / self.choice)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int8]:
        """Return the records of n participants, rounded to the grid at random; shape (n, coordinates)."""
        return self._round_records(contributions.values, noise)

    def _round_records(self, values: Array, source: RandomSource) -> NDArray[np.int8]:
        """Return records rounded to the grid at random, with exactly one arm each; (n, coordinates)."""
        records = round_stochastically((self.ball.clip(values) + 1) / 2, 2 * GRID, source) - GRID
        arms = values[:, : self.arms].argmax(axis=1)
        records[:, : self.arms] = GRID * (arms[:, None] == np.arange(self.arms))
        return records.astype(np.int8)

    def parse(self, rows: bytes) -> NDArray[np.int8]:
        """Parse reports from their concatenated bytes; records outside of the box would break the promise."""
        reports = view_rows(rows, np.dtype(("i1", (self.ball.coordinates,))))
        arms = reports[:, : self.arms].astype(np.int64)
        has_one_arm = (np.count_nonzero(arms, axis=1) == 1) & (arms.sum(axis=1) == GRID)
        check_valid(bool(has_one_arm.all()) and not np.any(reports < -GRID), "a record out of the box")
        return reports

    @override
    def empty(self) -> Moments:
        size = self.ball.coordinates
        return Moments(0, np.zeros(size * (size + 1) // 2, np.int64))

    @override
    def add(self, total: Moments, reports: NDArray[np.int8]) -> Moments:
        return total.merge_with(self._sum_products(reports))

    def _sum_products(self, records: NDArray[Any]) -> Moments:
        """Sum products of all pairs of coordinates: whole numbers below 2^53, exact in floating point in any order."""
        size = self.ball.coordinates
        sums, step = np.zeros((size, size)), max(1, _BLOCK_NUMBERS // size)
        for start in range(0, len(records), step):
            chunk = records[start : start + step].astype(np.float64)
            sums += chunk.T @ chunk
        return Moments(len(records), sums[~np.tri(size, k=-1, dtype=bool)].astype(np.int64))

    @override
    def release(self, total: Moments, noise: NoiseSource) -> SecondMomentSums:
        """Return the release of a total, with features chosen and noise drawn from ``noise``."""
        return self._build_release(
            total,
            lambda scores: draw_choice(scores, self.scale, noise),
            lambda deviation, count: _rounded_normal(deviation).draw(count, noise),
        )

    @override
    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> SecondMomentSums:
        """Draw a release of participants with these records, from a seeded generator."""
        return self._build_release(
            self._sum_products(self._round_records(contributions.values, rng)),
            lambda scores: simulate_choice(scores, self.scale, rng),
            lambda deviation, count: np.rint(deviation * rng.normal(size=count)).astype(np.int64),
        )

    def _build_release(self, total: Moments, choose_index: Any, draw: Any) -> SecondMomentSums:
        """Choose features by their scores, and return their second moments with symmetric noise."""
        scores, candidates, chosen = self.score_features(total), self.candidates, []
        for _ in range(self.screened):
            index = choose_index(scores[candidates]) if self.choice else int(scores[candidates].argmax())
            chosen.append(int(candidates[index]))
            candidates = np.delete(candidates, index)
        moments = self.select_block(total, chosen)
        if self.standard_deviation:
            moments = moments + _draw_symmetric(self._noise_deviations, draw)
        # A record has a single arm: products of two arms are 0 without noise.
        moments[: self.arms, : self.arms] *= np.eye(self.arms, dtype=np.int64)
        return SecondMomentSums(total.reports, np.array(chosen, np.int64), moments / GRID**2, self.variances)

    @property
    def candidates(self) -> Ints:
        """Indices of the features that may be chosen, in order."""
        return np.setdiff1d(np.arange(self.features), np.array(self.kept, np.int64))

    def score_features(self, total: Moments) -> Ints:
        """Return the absolute residuals of each feature's products with the value; secret; (features,)."""
        features, value = range(self.arms, self.ball.coordinates - 1), self.ball.coordinates - 1
        scores = self._product_sums(total, features, [value])[:, 0]
        if self.predicted:
            predictors = [*range(self.arms), *(self.arms + index for index in self.kept)]
            scores = UNIT * scores - self._product_sums(total, features, predictors) @ np.array(self.predicted)
        return np.abs(scores)

    def select_block(self, total: Moments, chosen: list[int]) -> Ints:
        """Return the exact block of arms, kept and ``chosen`` features, and the value; secret; in grid units."""
        features = [self.arms + index for index in (*self.kept, *chosen)]
        coordinates = [*range(self.arms), *features, self.ball.coordinates - 1]
        return self._product_sums(total, coordinates, coordinates)

    def _product_sums(self, total: Moments, rows: Sequence[int], columns: Sequence[int]) -> Ints:
        """Return the sums of products of the coordinates ``rows`` and ``columns``, without the whole large matrix."""
        row_indices, column_indices = np.array(rows)[:, None], np.array(columns)
        first, last = np.minimum(row_indices, column_indices), np.maximum(row_indices, column_indices)
        return np.asarray(total.sums[first * self.ball.coordinates - first * (first + 1) // 2 + last])

    @property
    def variances(self) -> Array:
        """Variances of the noise in a block."""
        deviations = self._noise_deviations
        return (deviations**2 + 1 / 12) / GRID**4 if self.standard_deviation else np.zeros_like(deviations)

    @property
    def _noise_deviations(self) -> Array:
        """Standard deviations of the noise, in grid units, (p, p): twice the variance on the diagonal."""
        lengths = np.full(self.width + 1, math.sqrt(1 + len(self.kept) + self.screened))
        lengths[-1] = 1.0
        doubled = 1 + (math.sqrt(2) - 1) * np.eye(self.width + 1)
        return np.asarray(self.standard_deviation * GRID**2 * np.outer(lengths, lengths) * doubled)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return an instance without a choice of features, and one with two choices."""
        box = Ball("max", 1.0, 2 + 4 + 1)
        return {
            "kept": cls(box, 2, (0, 2), 0, (), 0.0, 3.0),
            "screened": cls(box, 2, (1,), 2, (100, -50, 300), 0.5, 3.0),
        }

    @override
    def with_less_noise(self, factor: float) -> Self:
        standard_deviation = self.standard_deviation / factor if self.standard_deviation else factor
        choice = min(16.0, (self.choice or 0.1) * factor) if self.screened else 0.0
        return msgspec.structs.replace(self, choice=choice, standard_deviation=standard_deviation)


@lru_cache(maxsize=64)
def _rounded_normal(deviation: float) -> RoundedNormal:
    return RoundedNormal(deviation)


def _draw_symmetric(deviations: Array, draw: Any) -> Ints:
    """Draw a symmetric matrix of noise with standard deviations ``deviations``."""
    upper = np.triu_indices(len(deviations))
    upper_deviations, noise = deviations[upper], np.zeros(len(upper[0]), np.int64)
    for deviation in np.unique(upper_deviations):
        noise[upper_deviations == deviation] = draw(float(deviation), int((upper_deviations == deviation).sum()))
    matrix = np.zeros(deviations.shape, np.int64)
    matrix[upper] = noise
    return np.asarray(matrix + np.triu(matrix, 1).T)


@lru_cache(maxsize=256)
def block_noise(epsilon: float, delta: float, screened: int) -> tuple[float, float]:
    """Return each choice's epsilon and the block's standard deviation for a promise; refuse an uncertified promise."""
    min_deviation = gaussian_standard_deviation(epsilon, delta, SENSITIVITY)
    if not screened:
        return 0.0, min_deviation
    # A choice of a small range w has losses of variance w^2 / 3 in the worst pair, normal noise (2 / deviation)^2.
    choice = round_up(math.sqrt(3 * _CHOICE_BUDGET_SHARE / screened) * SENSITIVITY / min_deviation, _DIGITS)
    while not _is_private(choice, math.inf, screened, epsilon, delta):
        choice = round_up(choice / 2, _DIGITS)
    low, high = min_deviation, 2 * min_deviation
    while not _is_private(choice, high, screened, epsilon, delta):
        low, high = high, 2 * high
    for _ in range(_BISECTION_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _is_private(choice, middle, screened, epsilon, delta) else (middle, high)
    # Rounding to four digits gives the same numbers on all machines.
    return choice, round_up(high, _DIGITS)


def _is_private(choice: float, deviation: float, screened: int, epsilon: float, delta: float) -> bool:
    """Whether choices of this epsilon and a block with this noise keep the promise together."""
    events: list[Event] = [Repeated(Choice(choice), screened)]
    if deviation < math.inf:
        events.append(Gaussian(deviation, SENSITIVITY))
    return account(Sequential(tuple(events))).delta(epsilon) <= delta
