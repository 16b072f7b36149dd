"""Sources of randomness. Outside simulations and tests it is the operating system."""

import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NoiseSource(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform words, shape (count,)."""
        ...


class SecureNoise:
    """The operating system's entropy. It has no seed, and no session accepts another source."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` uniform words from ``os.urandom``, shape (count,)."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def accepted(count: int, propose: Callable[[int], tuple[NDArray[np.int64], NDArray[np.bool_]]]) -> NDArray[np.int64]:
    """Draw ``count`` integers by rejection, shape (count,).

    ``propose`` returns so many candidates, and which of them it accepts.
    """
    drawn = np.empty(count, np.int64)
    missing = np.arange(count)
    while len(missing):
        values, good = propose(len(missing))
        drawn[missing[good]] = values[good]
        missing = missing[~good]
    return drawn
