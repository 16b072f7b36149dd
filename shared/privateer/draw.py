"""Who is asked when: a public draw without replacement, which everybody can repeat from its seed."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.coins import mix
from privateer.errors import SpecError

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
        """Return the numbers of the people whom the round asks, shape (places,).

        Raises
        ------
        SpecError
            If the population is smaller than ``start + places``.
        """
        return drawn(self.seed, self.people, self.start, self.places)

    def asks(self, number: int) -> bool:
        """Whether the round asks the person of that number. A device finds this out by itself."""
        return 0 <= place(self.seed, self.people, number) - self.start < self.places


def drawn(seed: int, people: int, start: int, count: int) -> NDArray[np.int64]:
    """The people at places ``start`` to ``start + count`` of a random order of 0 to ``people`` - 1, shape (count,).

    One seed is one order: draws at places apart have no person in common, which parallel composition relies on.

    Parameters
    ----------
    seed
        Public, 64 bits.
    people
        At least ``start + count``.

    Raises
    ------
    SpecError
        If there are not so many people.
    """
    if not 0 <= start <= start + count <= people:
        raise SpecError(
            f"{people} people, {start + count} are to be asked", field="experiment.people", remedy="raise it"
        )
    return _order(seed, people)[start : start + count]


def place(seed: int, people: int, number: int) -> int:
    """The place of one person in that order: what a device finds out without putting everybody in order.

    Parameters
    ----------
    number
        Of the person, 0 to ``people`` - 1.
    """
    own = _hashes(seed, number, number + 1)[0]
    starts = range(0, people, _BLOCK)
    return sum(int(np.count_nonzero(_hashes(seed, start, min(people, start + _BLOCK)) < own)) for start in starts)


@lru_cache(maxsize=4)
def _order(seed: int, people: int) -> NDArray[np.int64]:
    """People by their hashes."""
    order = np.argsort(_hashes(seed, 0, people)).astype(np.int64)
    order.flags.writeable = False
    return order


def _hashes(seed: int, first: int, end: int) -> NDArray[np.uint64]:
    """Of the numbers from ``first`` up to ``end``; SplitMix64 is a bijection, so that no two are alike."""
    return mix(np.arange(first, end, dtype=np.uint64) ^ mix(np.full(1, seed, np.uint64)))
