"""The permutation, from the operating system's randomness."""

import secrets
from array import array
from collections.abc import Callable, Iterable


class Places:
    """The free places of a batch, handed out in an order that is uniform among all orders.

    This is the Fisher-Yates shuffle, one step a report: a report gets its place in the batch when it arrives. So its
    order of arrival is never written down, and the full batch needs no further permutation.

    Parameters
    ----------
    free
        The places that no report holds yet.
    below
        Source of randomness: returns a uniform integer in [0, n). Only tests pass another one.
    """

    def __init__(self, free: Iterable[int], below: Callable[[int], int] = secrets.randbelow) -> None:
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
