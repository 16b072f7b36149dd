"""The mechanism of symbols for a vector: public random directions close to it, by subset selection."""

import math
from functools import cached_property
from typing import Final, Self

import numpy as np
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event, Repeated, ShuffledSubset
from privateer_core.accounting.special_functions import cap_height
from privateer_core.arrays import Array, Coins, Ints, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import LocalSymbol, VectorTotal, with_coins
from privateer_core.mechanisms.vectors.vector_directions import (
    HONEST_MAX,
    amplified_directions,
    best_directions,
    build_response,
    mean_products,
    several_directions,
    unit_variance,
)
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import coin_classes, mix_words, words_to_normals
from privateer_core.sampling.randomness import NoiseSource, SubsetResponse

CLASSES_MAX: Final = 64
REPEATS_MAX: Final = 16
_ERROR_TOLERANCE: Final = 1.1
"""Factor of the smallest error within which fewer messages are preferred: each costs as much as a report."""
_BLOCK_NUMBERS: Final = 1 << 15
"""Number of random numbers made at a time; keeps the working set in the processor's cache."""

_FIXED_POINT_UNIT: Final = 1 << 30
"""Units of a fixed-point direction: integer sums do not depend on the order of addition."""


class VectorSymbol(LocalSymbol, frozen=True, tag="vector-symbol"):
    """Randomize a vector to a symbol: a public direction and its sign, likely close to the vector.

    A participant's coins give ``directions`` independent uniform directions in one dimension more than the vector has.
    The vector, lifted by that coordinate to norm 1, has as its own symbols the ``chosen`` directions with the largest
    absolute products, with their signs. Subset selection protects them. The direction sent, divided by its mean product
    with the vector and by the response's gain, is unbiased. With many directions this is PrivUnit with the best
    parameters (Bhowmick et al. 2018; Asi, Feldman and Talwar 2022: optimal among local mechanisms for unit vectors), as
    Isik et al. (2023) show of random simplices; but every secret probability is certified, since only a symbol is
    random in secret. PrivUnit draws secret points of a sphere in floating point; this mechanism hashes public points.

    Parameters
    ----------
    ball
        Ball of the vectors; its L2 radius counts.
    epsilon
        Pure local privacy of a message.
    directions
        Number of directions, at least 1; the alphabet has twice as many symbols.
    chosen
        Number of a participant's own directions, 1 to all.
    seed
        Public seed of the round, 64 bits.
    classes
        Number of public classes of participants, by their coins: each has a sum with the noise of its reports alone.
    repeats
        Number of messages of a report: each is a symbol with coins of its own, so that a permuted batch does not link
        them. 1 if coins determine classes.

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
        build_response(self.epsilon, self.directions, self.chosen)

    @classmethod
    def calibrated(cls, ball: Ball, epsilon: float, seed: int, classes: int = 1) -> Self:
        """Return the mechanism of fewest directions with an error within 2 % of the least; refuse a wrong epsilon."""
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
        max_messages: int = 1,
    ) -> Self:
        """Return the mechanism of about the smallest error whose shuffled batch keeps a promise.

        Parameters
        ----------
        ball, seed, classes
            As of the mechanism.
        promise
            Epsilon and delta.
        honest
            Number of reports of the batch that the promise counts on.
        limit
            Largest local epsilon of a report.
        share
            Privacy budget of a report, if several of a participant share the promise; a report is one message then.
        max_messages
            Largest number of messages of a report. Several of smaller epsilons are more informative than one if the
            batch, and not ``limit``, bounds them: amplification grows with e^epsilon, and accuracy does not.

        Raises
        ------
        SpecError
            If a batch is too small for a mechanism.
        """
        mechanisms = [cls(ball, *amplified_directions(ball.coordinates, promise, honest, limit, share), seed, classes)]
        for repeats in range(2, 1 + (max_messages if share is None else 1)):
            try:
                parameters = several_directions(ball.coordinates, promise, honest, limit, repeats)
            except SpecError:  # the batch is too small for this number of messages
                break
            mechanisms.append(cls(ball, *parameters, seed, classes, repeats))
        min_error = min(mechanism.error for mechanism in mechanisms)
        return next(mechanism for mechanism in mechanisms if mechanism.error <= _ERROR_TOLERANCE * min_error)

    def batch_event(self, honest: int) -> Event:
        """Return the event of a permuted batch, an upper bound: as if first messages were permuted alone, and so on.

        Messages have coins of their own, so each of these permutations is an event by itself, and they compose.
        """
        n_honest = min(honest, HONEST_MAX) if self.repeats > 1 else honest
        message_event = ShuffledSubset(self.epsilon, 2 * self.directions, self.chosen, n_honest)
        return Repeated(message_event, self.repeats) if self.repeats > 1 else message_event

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
        return build_response(self.epsilon, self.directions, self.chosen)

    @property
    def can_coins_choose_arm(self) -> bool:
        """Whether the coins of a report may have chosen the participant's arm: if they determine a class."""
        return self.classes > 1

    @cached_property
    def scale(self) -> float:
        """Factor by which a sent direction is unbiased for the participant's vector."""
        product, _ = mean_products(self.ball.coordinates + 1, self.directions, self.chosen)
        return self.ball.radius / (product * self.response.gain)

    def variance(self, length: float) -> float:
        """Return the exact variance of a report for a vector of a length, in radii, summed over coordinates."""
        unit = unit_variance(self.ball.coordinates, self.epsilon, self.directions, self.chosen, length)
        return self.ball.radius**2 * unit / self.repeats

    @cached_property
    def error(self) -> float:
        """Largest variance of a report over all vectors, summed over coordinates."""
        return max(self.variance(0.0), self.variance(1.0))

    @cached_property
    def worst_projection(self) -> float:
        """Largest variance of a report along a unit vector, over all vectors and unit vectors.

        With a the share of the lifted vector along the unit vector, a sent direction's square along it has the mean
        square * a^2 + (1 - square) / d * (1 - a^2), minus the square of the mean: linear in a^2.
        """
        d, gain = self.ball.coordinates, self.response.gain
        square = gain * mean_products(d + 1, self.directions, self.chosen)[1] + (1 - gain) / (d + 1)
        return self.scale**2 * max((1 - square) / d, square - (self.ball.radius / self.scale) ** 2) / self.repeats

    def randomize(self, contributions: BoundedVectors, noise: NoiseSource) -> Records:
        """Return messages of n participants, shape (n, repeats); the coins of all but the first are drawn here."""
        n, n_more = len(contributions), self.repeats - 1
        fresh_coins = noise.words(n * n_more).astype(np.uint32).reshape(n, n_more)  # the low bits of each word
        coins = np.concatenate([contributions.coins[:, None], fresh_coins], axis=1).ravel()
        repeated = BoundedVectors(coins, np.repeat(contributions.values, self.repeats, axis=0))
        return with_coins(coins, self.response.randomize(self.own_symbols(repeated), noise)).reshape(n, self.repeats)

    def own_symbols(self, contributions: BoundedVectors) -> Ints:
        """Return the participants' own symbols, shape (n, chosen), in any order; secret."""
        lifted = self._lift_to_sphere(contributions)
        own_symbols = np.empty((len(lifted), self.chosen), np.int64)
        step = max(1, _BLOCK_NUMBERS // (self.directions * lifted.shape[1]))
        for start in range(0, len(lifted), step):
            rows = slice(start, start + step)
            dots = self._dot_products(contributions.coins[rows], lifted[rows])
            nearest = np.argpartition(-np.abs(dots), self.chosen - 1, axis=1)[:, : self.chosen]
            own_symbols[rows] = 2 * nearest + (np.take_along_axis(dots, nearest, axis=1) > 0)
        return own_symbols

    def _dot_products(self, coins: Coins, lifted: Array) -> Array:
        """Return the products of lifted vectors with the directions of their coins, shape (n, directions)."""
        dots = np.empty((len(lifted), self.directions))
        step = max(1, _BLOCK_NUMBERS // lifted.size)
        for start in range(0, self.directions, step):
            indices = np.arange(start, min(start + step, self.directions))
            dots[:, indices] = np.einsum("nhd,nd->nh", self._directions(coins[:, None], indices[None, :]), lifted)
        return dots

    def _lift_to_sphere(self, contributions: BoundedVectors) -> Array:
        unit = self.ball.clip(contributions.values) / self.ball.radius
        lift = np.sqrt(np.maximum(0.0, 1 - np.square(unit).sum(axis=1, keepdims=True)))
        return np.concatenate([unit, lift], axis=1)

    def _directions(self, coins: Coins, indices: Ints) -> Array:
        """Return the unit vectors of (coins, index), which broadcast; shape (..., coordinates + 1)."""
        coordinates = np.arange(self.ball.coordinates + 1, dtype=np.uint64)
        words = mix_words(
            mix_words(coins.astype(np.uint64) + np.uint64(self.seed)) ^ mix_words(indices.astype(np.uint64))
        )
        normal = words_to_normals(mix_words(words[..., None] + coordinates * np.uint64(0xD1342543DE82EF95)))
        return np.asarray(normal / np.linalg.norm(normal, axis=-1, keepdims=True))

    def empty(self) -> VectorTotal:
        """Return the total of no messages; ``reports`` counts messages."""
        return VectorTotal(0, np.zeros(self.classes * self.ball.coordinates, np.int64))

    def add(self, total: VectorTotal, reports: Records) -> VectorTotal:
        """Return ``total`` with messages, of any shape and order, counted in."""
        reports = reports.ravel()
        sums = np.zeros((self.classes, self.ball.coordinates), np.int64)
        step = max(1, _BLOCK_NUMBERS // (self.ball.coordinates + 1))
        for start in range(0, len(reports), step):
            chunk = reports[start : start + step]
            symbols = chunk["symbol"].astype(np.int64)
            directions = self._directions(chunk["slot"], symbols >> 1)
            sums += self._sum_directions_by_class(chunk["slot"], (2 * (symbols & 1) - 1)[:, None] * directions)
        return total.merge_with(VectorTotal(len(reports), sums.ravel()))

    def _sum_directions_by_class(self, coins: Coins, directions: Array) -> Ints:
        """Sum directions by class, without their last coordinate and in fixed point; (classes, coordinates)."""
        fixed = np.rint(directions[:, :-1] * _FIXED_POINT_UNIT).astype(np.int64)
        if self.classes == 1:
            return np.asarray(fixed.sum(axis=0, keepdims=True))
        classes = coin_classes(coins, self.seed, self.classes)
        return np.stack([fixed[classes == k].sum(axis=0) for k in range(self.classes)])

    def _build_release(self, total: VectorTotal) -> VectorSums:
        # A participant with a missing message counts, with the mean of the received messages in its place.
        n = math.ceil(total.reports / self.repeats)
        noise = n * self.error / (self.ball.coordinates * self.classes)
        return VectorSums(n, total.sums / _FIXED_POINT_UNIT * (self.scale * n / max(1, total.reports)), noise)

    def simulate(self, contributions: BoundedVectors, rng: "np.random.Generator") -> VectorSums:
        """Draw a release without hashing directions: the product of a sent direction is an order statistic.

        The distribution is exact when the coins' hashes are independent.
        """
        sums = np.zeros((self.classes, self.ball.coordinates), np.int64)
        step = max(1, _BLOCK_NUMBERS // (self.ball.coordinates + 1))
        for start in range(0, len(contributions), step):
            rows = slice(start, start + step)
            chunk = BoundedVectors(contributions.coins[rows], contributions.values[rows])
            lifted = self._lift_to_sphere(chunk)
            for _ in range(self.repeats):
                sums += self._sum_directions_by_class(chunk.coins, self._simulate_directions(lifted, rng))
        return self._build_release(VectorTotal(self.repeats * len(contributions), sums.ravel()))

    def error_bounds(self, n_participants: int) -> tuple[float, float]:
        """Bound the error of the released average; see `GaussianVectors.error_bounds`.

        A symbol's vector is bounded by its scale, hence Bernstein's inequality.
        """
        scale = (self.scale + self.ball.radius) / (3 * n_participants * self.repeats)
        return self.worst_projection / n_participants, scale

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return small instances of balls, numbers of directions, classes and messages."""
        sphere, box = Ball("l2", 0.5, 4), Ball("max", 2.0, 3)
        return {
            "1": cls(sphere, 1.0, 1, 1, 5),
            "1-of-16": cls(sphere, 4.0, 16, 1, 6),
            "7-of-12": cls(sphere, 2.0, 12, 7, 6),
            "2-of-4-max": cls(box, 3.0, 4, 2, 7),
            "of-classes": cls(sphere, 1.0, 2, 1, 6, 2),
            "2-messages": cls(sphere, 1.0, 4, 1, 8, repeats=2),
        }

    def _simulate_directions(self, lifted: Array, rng: "np.random.Generator") -> Array:
        """Draw the signed directions that participants with these lifted vectors send."""
        n, coordinates = len(lifted), self.ball.coordinates
        rank = rng.integers(1, self.chosen + 1, n)
        # The share of directions with a larger product is uniform; of a chosen direction it is among the smallest.
        share = rng.beta(rank, self.directions - rank + 1)
        product = cap_height(coordinates + 1, share)
        uniform = np.sqrt(rng.beta(0.5, coordinates / 2, n)) * rng.choice([-1.0, 1.0], n)
        product = np.where(rng.random(n) < self.response.gain, product, uniform)[:, None]
        orthogonal = rng.normal(size=lifted.shape)
        orthogonal -= np.einsum("nd,nd->n", orthogonal, lifted)[:, None] * lifted
        orthogonal /= np.linalg.norm(orthogonal, axis=1, keepdims=True)
        return np.asarray(product * lifted + np.sqrt(1 - product**2) * orthogonal)
