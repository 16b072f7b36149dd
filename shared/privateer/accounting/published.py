"""Calibrations as papers publish them, for comparison: each with what it truly gives."""

import math
from dataclasses import dataclass

from privateer.accounting.events import ShuffledBits
from privateer.errors import SpecError


@dataclass(frozen=True)
class PublishedBits:
    """Paper 5, eq. (22): levels g, bits b and chance p of every person and coordinate.

    Attributes
    ----------
    levels, bits, chance
        g, b and p.
    event
        What the analyzer sees, for the accountant.
    """

    levels: int
    bits: int
    probability: float
    event: ShuffledBits

    @property
    def standard_deviation(self) -> float:
        """Deviation of the noise of a coordinate's sum, in units of the vector's range 2 * norm bound."""
        trials = self.event.trials
        return math.sqrt(trials * self.probability * (1 - self.probability)) / self.levels


def published_bits(epsilon: float, delta: float, coordinates: int, people: int) -> PublishedBits:
    """Paper 5, Algorithm 2, eq. (22), with g rounded up to a whole number.

    Raises
    ------
    SpecError
        If an argument is out of the theorem's range.
    """
    for field, value, good in (
        ("epsilon", epsilon, 0 < epsilon <= 15),
        ("delta", delta, 0 < delta < 1),
        ("coordinates", coordinates, coordinates >= 1),
        ("batch", people, people >= 1),
    ):
        if not good:
            raise SpecError(f"{value:g} is out of the theorem's range", field=field, remedy="epsilon is at most 15")
    scaled = epsilon / (18 * math.sqrt(math.log(2 / delta)))
    log = math.log(4 * coordinates / delta)
    levels = math.ceil(max(scaled * math.sqrt(people) / (6 * math.sqrt(5 * log)), math.sqrt(coordinates), 10))
    bits = math.ceil(180 * levels**2 * log / (scaled**2 * people))
    probability = 90 * levels**2 * log / (bits * scaled**2 * people)
    return PublishedBits(levels, bits, probability, ShuffledBits(bits * people, probability, levels, coordinates))
