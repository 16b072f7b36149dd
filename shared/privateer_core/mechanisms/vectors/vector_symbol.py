"""A symbol for a vector, or several: public random directions near to it, by subset selection."""

import math
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event, Repeated, ShuffledSubset
from privateer_core.accounting.special_functions import cap_height
from privateer_core.errors import SpecError
from privateer_core.mechanisms.local_symbol import LocalSymbol, with_coins
from privateer_core.mechanisms.vectors.vector_directions import (
    CROWD,
    amplified_directions,
    best_directions,
    products,
    response_of,
    several_directions,
    unit_variance,
)
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball, VectorTotal
from privateer_core.primitives.public_coins import classes_of, mix, normals_of
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import SubsetResponse

Array = NDArray[np.float64]
CLASSES_MAX: Final = 64
REPEATS_MAX: Final = 16
_FEWER: Final = 1.1
"""An error within this factor of the least will do, if it takes fewer messages: each costs what a report costs."""
_BLOCK: Final = 1 << 15
"""Random numbers made at a time; keeps the working set in the processor's cache."""

_FIXED: Final = 1 << 30
"""Units of a fixed-point direction: integer sums do not depend on the order of addition."""


class VectorSymbol(LocalSymbol, frozen=True, tag="vector-symbol"):
    """Randomize a vector to a symbol: a public direction and its sign, likely one that the vector points to.

    A person's coins give ``directions`` independent uniform directions in one dimension more than the vector has; the
    vector, lifted by that coordinate to length 1, has the ``chosen`` of them with the largest absolute products, with
    their signs, for its own symbols. Subset selection protects them. The direction sent, divided by its mean product
    with the vector and by the response's gain, is unbiased. With many directions this is PrivUnit with the best
    parameters (Bhowmick et al. 2018; Asi, Feldman and Talwar 2022: optimal among local mechanisms for unit vectors), as
    Isik et al. (2023) show of random simplices; but every secret probability is certified, since only a symbol is
    random in secret. Where PrivUnit draws secret points of a sphere in floating point, we hash public ones.

    Parameters
    ----------
    ball
        What people may tell; its L2 radius counts.
    epsilon
        Pure local privacy of a message.
    directions
        At least 1; the alphabet has twice as many symbols.
    chosen
        How many of the directions are a person's own, 1 to all.
    seed
        Public seed of the round, 64 bits.
    classes
        Public classes of people, told by their coins: each has a sum of its own, without the noise of the others.
    repeats
        Messages of a report: each is a symbol with coins of its own, so that nobody tells whose it is once a batch is
        permuted. 1 where coins tell classes.

    Notes
    -----
    Privacy cost: epsilon-LDP per message (subset selection; coins and directions are independent of the data), and
    ``repeats`` times as much per report.

    Raises
    ------
    SpecError
        If there is no such randomizer.
    """

    ball: Ball
    epsilon: float
    directions: int
    chosen: int
    seed: int
    classes: int = 1
    repeats: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.repeats <= REPEATS_MAX or (self.repeats > 1 and self.classes > 1):
            detail = f"must be 1 to {REPEATS_MAX}, and 1 where coins tell classes"
            raise SpecError(detail, field="repeats", remedy="send fewer")
        if not 1 <= self.classes <= CLASSES_MAX:
            raise SpecError(f"must be 1 to {CLASSES_MAX}", field="classes", remedy="ask about fewer")
        if not 1 <= self.chosen <= self.directions:
            raise SpecError("must be 1 to directions", field="chosen", remedy="use what the calibration gives")
        response_of(self.epsilon, self.directions, self.chosen)

    @classmethod
    def calibrated(cls, ball: Ball, epsilon: float, seed: int, classes: int = 1) -> Self:
        """Return the mechanism with the fewest directions whose error is within 2 % of the least of all.

        Raises
        ------
        SpecError
            If epsilon is out of range.
        """
        return cls(ball, epsilon, *best_directions(ball.coordinates, epsilon), seed, classes)

    @classmethod
    def amplified(
        cls,
        ball: Ball,
        promise: tuple[float, float],
        honest: int,
        limit: float,
        share: Allotment | None,
        seed: int,
        classes: int = 1,
        most: int = 1,
    ) -> Self:
        """Return the mechanism of about the least error whose shuffled batch keeps a promise.

        Parameters
        ----------
        ball, seed, classes
            As of the mechanism.
        promise
            Epsilon and delta.
        honest
            Reports of the batch that the promise counts on.
        limit
            The most that its local epsilon may be.
        share
            What a report may cost, where several of a person share the promise; it is one message then.
        most
            Messages that a report may be. Several of smaller epsilons tell more than one where the batch, and not
            ``limit``, decides what a message may cost: amplification grows with e^epsilon, and accuracy does not.

        Raises
        ------
        SpecError
            If a batch is too small for any.
        """
        made = [cls(ball, *amplified_directions(ball.coordinates, promise, honest, limit, share), seed, classes)]
        for repeats in range(2, 1 + (most if share is None else 1)):
            try:
                found = several_directions(ball.coordinates, promise, honest, limit, repeats)
            except SpecError:  # the batch is too small for so many
                break
            made.append(cls(ball, *found, seed, classes, repeats))
        least = min(one.error for one in made)
        return next(one for one in made if one.error <= _FEWER * least)

    def shuffled(self, honest: int) -> Event:
        """Return what a permuted batch reveals: were every person's first messages apart, and so on, it would be more.

        Messages have coins of their own, so each of those permutations is an event by itself, and they compose.
        """
        counted = min(honest, CROWD) if self.repeats > 1 else honest
        one = ShuffledSubset(self.epsilon, 2 * self.directions, self.chosen, counted)
        return Repeated(one, self.repeats) if self.repeats > 1 else one

    @property
    @override
    def local_epsilon(self) -> float:
        return self.repeats * self.epsilon

    @property
    @override
    def messages(self) -> int:
        return self.repeats

    @cached_property
    def response(self) -> SubsetResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        return response_of(self.epsilon, self.directions, self.chosen)

    @property
    def coins_choose(self) -> bool:
        """Whether the coins of a report may be those that chose the person's arm: only they tell a class."""
        return self.classes > 1

    @cached_property
    def scale(self) -> float:
        """What a named direction is multiplied by to be unbiased for a person's vector."""
        product, _ = products(self.ball.coordinates + 1, self.directions, self.chosen)
        return self.ball.radius / (product * self.response.gain)

    def variance(self, length: float) -> float:
        """Return the variance of one report for a vector of a length, in radii, all coordinates together; exact."""
        one = unit_variance(self.ball.coordinates, self.epsilon, self.directions, self.chosen, length)
        return self.ball.radius**2 * one / self.repeats

    @cached_property
    def error(self) -> float:
        """Variance of one report, all coordinates together, for the vectors for which it is largest."""
        return max(self.variance(0.0), self.variance(1.0))

    @cached_property
    def worst_projection(self) -> float:
        """Largest variance of one report along a direction of length 1, whatever the vector and the direction.

        With a the share of the lifted vector along the direction, a named direction's square along it has the mean
        square * a^2 + (1 - square) / d * (1 - a^2), from which the mean's square is taken: linear in a^2.
        """
        d, gain = self.ball.coordinates, self.response.gain
        square = gain * products(d + 1, self.directions, self.chosen)[1] + (1 - gain) / (d + 1)
        return self.scale**2 * max((1 - square) / d, square - (self.ball.radius / self.scale) ** 2) / self.repeats

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> NDArray[np.void]:
        """Return messages of n people, shape (n, repeats); the coins of all but the first are drawn here."""
        people, more = len(contributions), self.repeats - 1
        fresh = noise.words(people * more).astype(np.uint32).reshape(people, more)  # the low bits of each word
        coins = np.concatenate([contributions.coins[:, None], fresh], axis=1).ravel()
        repeated = BoundedVectors(coins, np.repeat(contributions.values, self.repeats, axis=0))
        return with_coins(coins, self.response.randomize(self.own(repeated), noise)).reshape(people, self.repeats)

    def own(self, contributions: BoundedVectors) -> NDArray[np.int64]:
        """Everybody's own symbols, shape (n, chosen), in any order; secret."""
        lifted = self._lifted(contributions)
        own = np.empty((len(lifted), self.chosen), np.int64)
        step = max(1, _BLOCK // (self.directions * lifted.shape[1]))
        for start in range(0, len(lifted), step):
            rows = slice(start, start + step)
            dots = self._dots(contributions.coins[rows], lifted[rows])
            best = np.argpartition(-np.abs(dots), self.chosen - 1, axis=1)[:, : self.chosen]
            own[rows] = 2 * best + (np.take_along_axis(dots, best, axis=1) > 0)
        return own

    def _dots(self, coins: NDArray[np.uint32], lifted: Array) -> Array:
        """Products of lifted vectors with the directions of their coins, shape (n, directions)."""
        dots = np.empty((len(lifted), self.directions))
        step = max(1, _BLOCK // lifted.size)
        for start in range(0, self.directions, step):
            some = np.arange(start, min(start + step, self.directions))
            named = self._directions(coins[:, None], some[None, :])
            dots[:, some] = np.einsum("nhd,nd->nh", named, lifted)
        return dots

    def _lifted(self, contributions: BoundedVectors) -> Array:
        unit = self.ball.clip(contributions.values) / self.ball.radius
        lift = np.sqrt(np.maximum(0.0, 1 - np.square(unit).sum(axis=1, keepdims=True)))
        return np.concatenate([unit, lift], axis=1)

    def _directions(self, coins: NDArray[np.uint32], indices: NDArray[np.int64]) -> Array:
        """Return the unit vectors of (coins, index), which broadcast; shape (..., coordinates + 1)."""
        places = np.arange(self.ball.coordinates + 1, dtype=np.uint64)
        words = mix(mix(coins.astype(np.uint64) + np.uint64(self.seed)) ^ mix(indices.astype(np.uint64)))
        normal = normals_of(mix(words[..., None] + places * np.uint64(0xD1342543DE82EF95)))
        return np.asarray(normal / np.linalg.norm(normal, axis=-1, keepdims=True))

    def empty(self) -> VectorTotal:
        """Return the total of no messages; ``reports`` counts messages."""
        return VectorTotal(0, np.zeros(self.classes * self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, reports: NDArray[np.void]) -> VectorTotal:
        """Return ``total`` with messages, of any shape and order, counted in."""
        reports = reports.ravel()
        sums = np.zeros((self.classes, self.ball.coordinates), np.int64)
        step = max(1, _BLOCK // (self.ball.coordinates + 1))
        for start in range(0, len(reports), step):
            part = reports[start : start + step]
            symbols = part["symbol"].astype(np.int64)
            named = self._directions(part["slot"], symbols >> 1)
            sums += self._summed(part["slot"], (2 * (symbols & 1) - 1)[:, None] * named)
        return total.merged(VectorTotal(len(reports), sums.ravel()))

    def _summed(self, coins: NDArray[np.uint32], named: Array) -> NDArray[np.int64]:
        """Sums of directions, without their last coordinate and in fixed point, by class; (classes, coordinates)."""
        fixed = np.rint(named[:, :-1] * _FIXED).astype(np.int64)
        if self.classes == 1:
            return np.asarray(fixed.sum(axis=0, keepdims=True))
        own = classes_of(coins, self.seed, self.classes)
        return np.stack([fixed[own == one].sum(axis=0) for one in range(self.classes)])

    def _released(self, total: VectorTotal) -> VectorSums:
        # A person with a missing message counts, and the average over what came stands for it.
        people = math.ceil(total.reports / self.repeats)
        noise = people * self.error / (self.ball.coordinates * self.classes)
        return VectorSums(people, total.sums / _FIXED * (self.scale * people / max(1, total.reports)), noise)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release, without hashing anybody's directions: the product of a named one is an order statistic.

        The distribution is exact when the coins' hashes are independent.
        """
        sums = np.zeros((self.classes, self.ball.coordinates), np.int64)
        step = max(1, _BLOCK // (self.ball.coordinates + 1))
        for start in range(0, len(contributions), step):
            rows = slice(start, start + step)
            part = BoundedVectors(contributions.coins[rows], contributions.values[rows])
            lifted = self._lifted(part)
            for _ in range(self.repeats):
                sums += self._summed(part.coins, self._named(lifted, rng))
        return self._released(VectorTotal(self.repeats * len(contributions), sums.ravel()))

    def spread(self, people: int) -> tuple[float, float]:
        """Bound how far the released average of ``people`` is off; see `GaussianVectors.spread`.

        A symbol's vector is bounded by its scale, hence Bernstein's inequality.
        """
        return self.worst_projection / people, (self.scale + self.ball.radius) / (3 * people * self.repeats)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        sphere, box = Ball("l2", 0.5, 4), Ball("max", 2.0, 3)
        return {
            "1": cls(sphere, 1.0, 1, 1, 5),
            "1-of-16": cls(sphere, 4.0, 16, 1, 6),
            "7-of-12": cls(sphere, 2.0, 12, 7, 6),
            "2-of-4-max": cls(box, 3.0, 4, 2, 7),
            "of-classes": cls(sphere, 1.0, 2, 1, 6, 2),
            "2-messages": cls(sphere, 1.0, 4, 1, 8, repeats=2),
        }

    def _named(self, lifted: Array, rng: "np.random.Generator") -> Array:
        """Return signed directions that people with these lifted vectors name."""
        n, coordinates = len(lifted), self.ball.coordinates
        rank = rng.integers(1, self.chosen + 1, n)
        # The share of directions with a larger product is uniform; of those chosen it is one of the smallest.
        share = rng.beta(rank, self.directions - rank + 1)
        product = cap_height(coordinates + 1, share)
        uniform = np.sqrt(rng.beta(0.5, coordinates / 2, n)) * rng.choice([-1.0, 1.0], n)
        product = np.where(rng.random(n) < self.response.gain, product, uniform)[:, None]
        aside = rng.normal(size=lifted.shape)
        aside -= np.einsum("nd,nd->n", aside, lifted)[:, None] * lifted
        aside /= np.linalg.norm(aside, axis=1, keepdims=True)
        return np.asarray(product * lifted + np.sqrt(1 - product**2) * aside)
