"""The public draw of the people whom a round asks, without replacement. Everybody can repeat it from its seed."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import mix

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Draw:
    """The public draw of the people whom a round asks.

    Draws of one seed whose places do not overlap have no person in common, which parallel composition relies on.

    Attributes
    ----------
    seed
        Public, 64 bits. It puts everybody in a random order.
    people
        Size of the population: people are numbered from 0 to ``people`` - 1.
    start
        First place of the order that the round asks.
    places
        Number of people whom the round asks.
    """

    seed: int
    people: int
    start: int
    places: int

    def asked(self) -> NDArray[np.int64]:
        """Return the numbers of the people whom the round asks, shape (places,), in the order of their places.

        Raises
        ------
        SpecError
            If the population is smaller than ``start + places``.
        """
        end = self.start + self.places
        if not 0 <= self.start <= end <= self.people:
            detail = f"there are {self.people} people, but {end} are to be asked"
            raise SpecError(detail, field="experiment.people", remedy="raise it")
        return _order(self.seed, self.people)[self.start : end]

    def asks(self, number: int) -> bool:
        """Whether the round asks the person of that number, from 0. A device finds this out by itself."""
        # It counts how many come before, which takes less memory than putting everybody in order.
        own = _hashes(self.seed, number, number + 1)[0]
        place = 0
        for first in range(0, self.people, _BLOCK):
            others = _hashes(self.seed, first, min(self.people, first + _BLOCK))
            place += int(np.count_nonzero(others < own))
        return self.start <= place < self.start + self.places


@lru_cache(maxsize=4)
def _order(seed: int, people: int) -> NDArray[np.int64]:
    """Sort people by their hashes."""
    order = np.argsort(_hashes(seed, 0, people)).astype(np.int64)
    order.flags.writeable = False
    return order


def _hashes(seed: int, first: int, end: int) -> NDArray[np.uint64]:
    """Hash the numbers from ``first`` to ``end`` - 1. SplitMix64 is a bijection, so no two hashes are equal."""
    return mix(np.arange(first, end, dtype=np.uint64) ^ mix(np.full(1, seed, np.uint64)))
