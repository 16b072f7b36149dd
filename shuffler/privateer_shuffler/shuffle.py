"""The random permutation of a batch, from the operating system's randomness."""

import os
from array import array
from collections.abc import Callable, Iterable
from typing import Final

_WORD_RANGE: Final = 1 << 64
_N_BUFFERED_WORDS: Final = 256
"""Number of 64-bit words fetched at once: a system call for each would cost as much as storing a report."""


class RandomBelow:
    """A source of uniform integers from the operating system's randomness."""

    def __init__(self) -> None:
        self._words = array("Q")

    def __call__(self, count: int) -> int:
        """Draw a number in [0, count), each with exactly the same probability."""
        word_limit = _WORD_RANGE - _WORD_RANGE % count
        while True:
            if not self._words:
                self._words.frombytes(os.urandom(8 * _N_BUFFERED_WORDS))
            word = self._words.pop()
            if word < word_limit:  # larger words would make small numbers likelier
                return word % count


class ShuffledPlaces:
    """The free places of a batch, handed out in an order that is uniform among all orders.

    This is the Fisher-Yates shuffle, one step a report: a report gets its place in the batch when it arrives. So its
    order of arrival is never written down, and the full batch needs no further permutation.

    free: the places that no report holds yet.
    below: source of randomness: returns a uniform integer in [0, n).
    """

    def __init__(self, free: Iterable[int], draw_below: Callable[[int], int]) -> None:
        self._free = array("Q", free)
        self._below = draw_below

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
    """The free places of a batch in which every kind of message has separate places, one kind after another.

    free: the places without a message.
    n_participants: participants of the batch.
    n_messages: messages of each kind per participant.
    n_kinds: number of kinds.
    draw_below: as for `ShuffledPlaces`.
    """

    def __init__(
        self, free: Iterable[int], n_participants: int, n_messages: int, n_kinds: int, draw_below: Callable[[int], int]
    ) -> None:
        self._size, self._n_messages = n_participants * n_messages, n_messages
        by_kind: list[list[int]] = [[] for _ in range(n_kinds)]
        for place in free:
            by_kind[place // self._size].append(place)
        self._kinds = [ShuffledPlaces(places, draw_below) for places in by_kind]
        self._places_of_participant = [places for places in self._kinds for _ in range(n_messages)]

    @property
    def capacity(self) -> int:
        """Number of further participants for whom places are free."""
        return len(self._kinds[0]) // self._n_messages

    def draw(self, n_participants: int) -> list[int]:
        """Draw places for all messages of participants, in the order in which each participant sends them."""
        return [places.draw() for _ in range(n_participants) for places in self._places_of_participant]

    def give_back(self, place: int) -> None:
        """Make a place free again."""
        self._kinds[place // self._size].give_back(place)
