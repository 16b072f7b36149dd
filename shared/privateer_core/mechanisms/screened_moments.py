"""Second moments of few of many features with a trusted curator: a private choice of features, then one noisy block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Choice, Event, Gaussian, Repeated, Sequential
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import Mechanism, check_range, whole
from privateer_core.portable import round_up
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import Total
from privateer_core.primitives.questions import SecondMoments
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.laplace import choose, simulate_choice
from privateer_core.sampling.normal import RoundedNormal, sampling_cost
from privateer_core.sampling.response import rounded

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
GRID: Final = 127
"""Steps of a coordinate in [0, 1]: it is a signed byte."""
UNIT: Final = 1024
"""Steps of a prediction."""
SENSITIVITY: Final = 2.0
"""L2 change of a block when a person is replaced; see `ScreenedMoments`."""
_CHOICE_LEAST: Final = 1e-9
"""Least epsilon of a choice: the sampler counts in 64 bits up to its scale."""
_SHARE: Final = 0.65
"""Share of the budget that choices have, as concentrated privacy counts."""
_DIGITS: Final = 4
_STEPS: Final = 14
_BLOCK: Final = 1 << 21
"""Numbers of a block of records: keeps memory small."""


@dataclass(frozen=True)
class Moments(Total):
    """Exact sums of products of all pairs of coordinates, in grid units squared: the upper triangle, row by row."""

    sums: Integers


class ScreenedMoments(Mechanism, frozen=True, tag="screened-moments"):
    """A curator gets records, rounded at random; a release chooses features, and has their noisy second moments.

    A record z has a 1 for its arm among ``arms`` coordinates, then features, then the value, all in [-1, 1]. Only sums
    of products are held, so that no record outlives its request. A release scores every feature that is not kept by the
    absolute sum of its products with the value less what is predicted, takes ``screened`` of them one after the other
    by the exponential mechanism (the same as the largest of scores with Gumbel noise; Durfee and Rogers 2019), and then
    has the second moments of arms, kept and chosen features, and the value, in one block.

    Parameters
    ----------
    ball
        Where records lie: a box.
    arms
        Coordinates of which one is 1.
    kept
        Places among the features that are in the block in any case, in order.
    screened
        How many more are chosen.
    predicted
        What is predicted of the value by the coordinate of an arm, and by each kept feature, in 1/1024; empty: nothing.
    choice
        Epsilon of each choice; 0: the largest is taken.
    standard_deviation
        Of the noise in a block, at sensitivity 2; 0: there is none.

    Raises
    ------
    SpecError
        If there is no such block or noise.

    Notes
    -----
    Privacy cost: ``screened`` choices, and one release with normal noise. With k features and the arm's 1, a person's
    coordinates are at most sqrt(k + 1) long. Divided by that, and beside the value, they are a vector z of length
    sqrt(2) at most, and the person's part of the block is z z^T / sqrt 2. Replacing the person by one with z' moves it
    by at most 2: the square of the distance is (|z|^4 + |z'|^4 - 2 <z, z'>^2) / 2. Replacing a person moves every score
    by at most twice what one record adds to it, and of two scores one may rise and the other fall.
    """

    ball: Ball
    arms: int
    kept: tuple[int, ...]
    screened: int
    predicted: tuple[int, ...] = ()
    choice: float = 0.0
    standard_deviation: float = 0.0

    def __post_init__(self) -> None:
        places = list(self.kept)
        possible = self.ball.norm == "max" and self.ball.bound == 1 and self.arms >= 1 and self.features >= 1
        possible = possible and places == sorted(set(places)) and all(0 <= one < self.features for one in places)
        possible = possible and self.screened >= 0 and 1 <= len(places) + self.screened <= self.features
        possible = possible and len(self.predicted) in (0, self.arms + len(places))
        if not (possible and all(abs(one) <= UNIT for one in self.predicted)):
            raise SpecError("there is no such block", field="kept", remedy="fetch the policy again")
        noisy = 0 <= self.standard_deviation < 1e6 and (self.choice == 0 or _CHOICE_LEAST <= self.choice <= 16)
        if not (noisy and (self.choice > 0) == (self.screened > 0 and self.standard_deviation > 0)):
            raise SpecError("there is no such noise", field="standard_deviation", remedy="use what the spec promises")

    @classmethod
    def exact(cls, question: SecondMoments) -> Self:
        """Return the mechanism whose releases have no noise."""
        predicted = tuple(round(UNIT * one) for one in question.predicted)
        return cls(question.ball, question.arms, question.kept, question.screened, predicted)

    @classmethod
    def calibrated(cls, question: SecondMoments, epsilon: float, delta: float) -> Self:
        """Return the mechanism whose releases are (epsilon, delta)-private.

        Raises
        ------
        SpecError
            If the promise is out of the certified range.
        """
        made = cls.exact(question)
        choice, deviation = block_noise(epsilon, delta - sampling_cost(made.released_numbers), question.screened)
        return msgspec.structs.replace(made, choice=choice, standard_deviation=deviation)

    @property
    def features(self) -> int:
        """Features of a record."""
        return self.ball.coordinates - self.arms - 1

    @property
    def width(self) -> int:
        """Coordinates of a block beside the value: arms, kept features and chosen ones."""
        return self.arms + len(self.kept) + self.screened

    @property
    def released_numbers(self) -> int:
        """Numbers of a block."""
        return (self.width + 1) * (self.width + 2) // 2

    @property
    @override
    def report_size(self) -> int:
        return self.ball.coordinates

    @property
    @override
    def released(self) -> Event | None:
        if not self.standard_deviation:
            return None
        block = Gaussian(self.standard_deviation, SENSITIVITY)
        if not self.screened:
            return block
        chosen = Choice(4 * self._most / self.scale)
        return Sequential((Repeated(chosen, self.screened) if self.screened > 1 else chosen, block))

    @property
    @override
    def sampling(self) -> float:
        return sampling_cost(self.released_numbers) if self.standard_deviation else 0.0

    @property
    def _most(self) -> int:
        """The most that one record adds to a score, in its units."""
        if not self.predicted:
            return GRID**2
        arms, kept = self.predicted[: self.arms], self.predicted[self.arms :]
        return GRID**2 * (UNIT + max(map(abs, arms)) + sum(map(abs, kept)))

    @property
    def score_scale(self) -> float:
        """Scale of what a choice adds to the sum of products of a feature and the value."""
        return self.scale / self._most if self.choice else 0.0

    @property
    def product_variance(self) -> float:
        """Variance of what is added to the sum of products of a feature and the value, and 0 without noise."""
        return float(self._deviations[0, -1] / GRID**2) ** 2

    @cached_property
    def scale(self) -> int:
        """Scale of the exponential mechanism: two scores may move by twice the most each, in opposite directions."""
        return math.ceil(4 * self._most / self.choice)

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.int8]:
        """Return the records of n people, rounded to the grid at random; shape (n, coordinates)."""
        return self._on_grid(contributions.values, noise)

    def _on_grid(self, values: Array, source: "NoiseSource | np.random.Generator") -> NDArray[np.int8]:
        shares = (self.ball.clip(values) + 1) / 2
        records = rounded(shares.ravel(), 2 * GRID, source).reshape(shares.shape) - GRID
        arms = values[:, : self.arms].argmax(axis=1)
        records[:, : self.arms] = GRID * (arms[:, None] == np.arange(self.arms))
        return records.astype(np.int8)

    def parse(self, rows: bytes) -> NDArray[np.int8]:
        """Parse reports from their concatenated bytes; a curator holds people to the box, which its promise needs."""
        reports = whole(rows, np.dtype(("i1", (self.ball.coordinates,))))
        arms = reports[:, : self.arms].astype(np.int64)
        one = (np.count_nonzero(arms, axis=1) == 1) & (arms.sum(axis=1) == GRID)
        check_range(bool(one.all()) and not np.any(reports < -GRID), "a record out of the box")
        return reports

    @override
    def empty(self) -> Moments:
        size = self.ball.coordinates
        return Moments(0, np.zeros(size * (size + 1) // 2, np.int64))

    @override
    def add(self, total: Moments, reports: NDArray[np.int8]) -> Moments:
        return total.merged(self._summed(reports))

    def _summed(self, records: NDArray[Any]) -> Moments:
        """Sum products: whole numbers below 2^53, so that floating point is exact in any order."""
        size = self.ball.coordinates
        sums, step = np.zeros((size, size)), max(1, _BLOCK // size)
        for start in range(0, len(records), step):
            some = records[start : start + step].astype(np.float64)
            sums += some.T @ some
        return Moments(len(records), sums[~np.tri(size, k=-1, dtype=bool)].astype(np.int64))

    @override
    def release(self, total: Moments, noise: NoiseSource) -> SecondMomentSums:
        return self._released(
            total,
            lambda scores: choose(scores, self.scale, noise),
            lambda deviation, count: _normal(deviation).draw(count, noise),
        )

    @override
    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> SecondMomentSums:
        return self._released(
            self._summed(self._on_grid(contributions.values, rng)),
            lambda scores: simulate_choice(scores, self.scale, rng),
            lambda deviation, count: np.rint(deviation * rng.normal(size=count)).astype(np.int64),
        )

    def _released(self, total: Moments, choose_one: Any, draw: Any) -> SecondMomentSums:
        scores, left, chosen = self.scores(total), self.candidates, []
        for _ in range(self.screened):
            place = choose_one(scores[left]) if self.choice else int(scores[left].argmax())
            chosen.append(int(left[place]))
            left = np.delete(left, place)
        moments = self.block(total, chosen)
        if self.standard_deviation:
            moments = moments + _symmetric(self._deviations, draw)
        # Nobody has two arms: whatever is drawn there says nothing.
        moments[: self.arms, : self.arms] *= np.eye(self.arms, dtype=np.int64)
        return SecondMomentSums(total.reports, np.array(chosen, np.int64), moments / GRID**2, self.variances)

    @property
    def candidates(self) -> Integers:
        """Features that may be chosen, in order."""
        return np.setdiff1d(np.arange(self.features), np.array(self.kept, np.int64))

    def scores(self, total: Moments) -> Integers:
        """Return by how much each feature's products with the value are off what is predicted; secret; (features,)."""
        features, value = range(self.arms, self.ball.coordinates - 1), self.ball.coordinates - 1
        scores = self._sums(total, features, [value])[:, 0]
        if self.predicted:
            known = [*range(self.arms), *(self.arms + place for place in self.kept)]
            scores = UNIT * scores - self._sums(total, features, known) @ np.array(self.predicted)
        return np.abs(scores)

    def block(self, total: Moments, chosen: list[int]) -> Integers:
        """Return the exact block of arms, kept features, ``chosen`` ones and the value; secret; in grid units."""
        inside = [*range(self.arms), *(self.arms + place for place in (*self.kept, *chosen)), self.ball.coordinates - 1]
        return self._sums(total, inside, inside)

    def _sums(self, total: Moments, rows: Sequence[int], columns: Sequence[int]) -> Integers:
        """Return the sums of products of some coordinates with others, without the whole matrix: it may be large."""
        one, other = np.array(rows)[:, None], np.array(columns)
        first, last = np.minimum(one, other), np.maximum(one, other)
        return np.asarray(total.sums[first * self.ball.coordinates - first * (first + 1) // 2 + last])

    @property
    def variances(self) -> Array:
        """Variances of the noise in a block."""
        return (self._deviations**2 + 1 / 12) / GRID**4 if self.standard_deviation else np.zeros_like(self._deviations)

    @property
    def _deviations(self) -> Array:
        """Standard deviations of the noise, in grid units, (p, p): twice the variance on the diagonal."""
        lengths = np.full(self.width + 1, math.sqrt(1 + len(self.kept) + self.screened))
        lengths[-1] = 1.0
        doubled = 1 + (math.sqrt(2) - 1) * np.eye(self.width + 1)
        return np.asarray(self.standard_deviation * GRID**2 * np.outer(lengths, lengths) * doubled)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        box = Ball("max", 1.0, 2 + 4 + 1)
        return {
            "kept": cls(box, 2, (0, 2), 0, (), 0.0, 3.0),
            "screened": cls(box, 2, (1,), 2, (100, -50, 300), 0.5, 3.0),
        }

    @override
    def weaker(self, factor: float) -> Self:
        less = self.standard_deviation / factor if self.standard_deviation else factor
        choice = min(16.0, (self.choice or 0.1) * factor) if self.screened else 0.0
        return msgspec.structs.replace(self, choice=choice, standard_deviation=less)


@lru_cache(maxsize=64)
def _normal(deviation: float) -> RoundedNormal:
    return RoundedNormal(deviation)


def _symmetric(deviations: Array, draw: Any) -> Integers:
    """Draw a symmetric matrix of noise with these standard deviations."""
    upper = np.triu_indices(len(deviations))
    wanted, noise = deviations[upper], np.zeros(len(upper[0]), np.int64)
    for deviation in np.unique(wanted):
        noise[wanted == deviation] = draw(float(deviation), int((wanted == deviation).sum()))
    matrix = np.zeros(deviations.shape, np.int64)
    matrix[upper] = noise
    return np.asarray(matrix + np.triu(matrix, 1).T)


@lru_cache(maxsize=256)
def block_noise(epsilon: float, delta: float, screened: int) -> tuple[float, float]:
    """Return the epsilon of each choice and the block's standard deviation, which together keep a promise.

    Raises
    ------
    SpecError
        If the promise is out of the certified range.
    """
    least = gaussian_standard_deviation(epsilon, delta, SENSITIVITY)
    if not screened:
        return 0.0, least
    # A choice of a small range w has losses of variance w^2 / 3 in the worst pair, normal noise (2 / deviation)^2.
    choice = round_up(math.sqrt(3 * _SHARE / screened) * SENSITIVITY / least, _DIGITS)
    while not _keeps(choice, math.inf, screened, epsilon, delta):
        choice = round_up(choice / 2, _DIGITS)
    low, high = least, 2 * least
    while not _keeps(choice, high, screened, epsilon, delta):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _keeps(choice, middle, screened, epsilon, delta) else (middle, high)
    # Numbers of so few digits are the same on all machines.
    return choice, round_up(high, _DIGITS)


def _keeps(choice: float, deviation: float, screened: int, epsilon: float, delta: float) -> bool:
    events: list[Event] = [Repeated(Choice(choice), screened)]
    if deviation < math.inf:
        events.append(Gaussian(deviation, SENSITIVITY))
    return account(Sequential(tuple(events))).delta(epsilon) <= delta
