"""The permutation, from the operating system's randomness."""

import os
from array import array
from collections.abc import Callable, Iterable
from typing import Final

_WORD: Final = 1 << 64
_WORDS: Final = 256
"""Words of 64 bits that are fetched at once: a call of the system for each would cost as much as storing a report."""


class RandomBelow:
    """Uniform integers from the operating system's randomness; each is used once."""

    def __init__(self) -> None:
        self._words = array("Q")

    def __call__(self, count: int) -> int:
        """Return one of [0, count), each with exactly the same probability."""
        whole = _WORD - _WORD % count
        while True:
            if not self._words:
                self._words.frombytes(os.urandom(8 * _WORDS))
            word = self._words.pop()
            if word < whole:  # the rest would make the small ones likelier
                return word % count


class RandomPlaces:
    """The free places of a batch, handed out in an order that is uniform among all orders.

    This is the Fisher-Yates shuffle, one step a report: a report gets its place in the batch when it arrives. So its
    order of arrival is never written down, and the full batch needs no further permutation.

    free: the places that no report holds yet.
    below: source of randomness: returns a uniform integer in [0, n).
    """

    def __init__(self, free: Iterable[int], below: Callable[[int], int]) -> None:
        self._free = array("Q", free)
        self._below = below

    def __len__(self) -> int:
        return len(self._free)

    def draw(self) -> int:
        """Take one of the free places, each with equal probability."""
        free = self._free
        index = self._below(len(free))
        free[index], free[-1] = free[-1], free[index]
        return free.pop()

    def give_back(self, place: int) -> None:
        """Make a place free again, because the report that it was drawn for could not be stored."""
        self._free.append(place)


class Groups:
    """The free places of a batch in which every kind of message has places of its own, one kind after another.

    free: the places that no message holds yet.
    people: in the batch.
    each: messages of each kind that one person sends.
    kinds: how many there are.
    below: as for `RandomPlaces`.
    """

    def __init__(self, free: Iterable[int], people: int, each: int, kinds: int, below: Callable[[int], int]) -> None:
        self._size, self._each = people * each, each
        by_kind: list[list[int]] = [[] for _ in range(kinds)]
        for place in free:
            by_kind[place // self._size].append(place)
        self._kinds = [RandomPlaces(places, below) for places in by_kind]
        self._of_person = [places for places in self._kinds for _ in range(each)]

    @property
    def room(self) -> int:
        """How many more people find places; all of them take as many of each kind."""
        return len(self._kinds[0]) // self._each

    def draw(self, people: int) -> list[int]:
        """Take places for every message of so many people, in the order in which each person sends them."""
        return [places.draw() for _ in range(people) for places in self._of_person]

    def give_back(self, place: int) -> None:
        """Make a place free again."""
        self._kinds[place // self._size].give_back(place)
