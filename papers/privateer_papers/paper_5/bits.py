"""Paper 5's shuffled bits, with the event that the accountant needs to compute their true privacy."""

import math
from dataclasses import dataclass
from typing import Final

from privateer_core.accounting.events import ShuffledBits
from privateer_core.accounting.numerics import check
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.primitives.clipping import Ball

EPSILON_MAX: Final = 15.0
"""The largest epsilon of the theorem."""


@dataclass(frozen=True)
class PublishedBits:
    """Paper 5, eq. (22): levels g, bits b and probability p for every person and coordinate."""

    # g, b and p
    levels: int
    bits: int
    probability: float
    event: ShuffledBits  # what the analyzer sees

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise in a coordinate's sum, in units of the range 2 * norm bound."""
        trials = self.event.trials
        return math.sqrt(trials * self.probability * (1 - self.probability)) / self.levels


def published_bits(epsilon: float, delta: float, coordinates: int, people: int) -> PublishedBits:
    """Return the calibration of paper 5, Algorithm 2, eq. (22), with g rounded up to a whole number."""
    check("epsilon", epsilon, 0 < epsilon <= EPSILON_MAX, f"above 0 and at most {EPSILON_MAX:g} by the theorem")
    check("delta", delta, 0 < delta < 1, "above 0 and below 1")
    check("coordinates", coordinates, coordinates >= 1, "at least 1")
    check("batch", people, people >= 1, "at least 1")
    scaled = epsilon / (18 * math.sqrt(math.log(2 / delta)))
    log = math.log(4 * coordinates / delta)
    levels = math.ceil(max(scaled * math.sqrt(people) / (6 * math.sqrt(5 * log)), math.sqrt(coordinates), 10))
    bits = math.ceil(180 * levels**2 * log / (scaled**2 * people))
    probability = 90 * levels**2 * log / (bits * scaled**2 * people)
    return PublishedBits(levels, bits, probability, ShuffledBits(bits * people, probability, levels, coordinates))


def published_vectors(ball: Ball, epsilon: float, delta: float, n_participants: int) -> BitVectors:
    """Return paper 5's eq. (22) as a mechanism, which is far noisier than necessary.

    Algorithm 2 takes every coordinate to have the range of the whole vector's norm, and so does this.
    """
    coordinate_ball = Ball("max", ball.bound * math.sqrt(ball.coordinates), ball.coordinates)
    published = published_bits(epsilon, delta, ball.coordinates, n_participants)
    return BitVectors(coordinate_ball, published.levels, published.bits, published.probability, n_participants)
