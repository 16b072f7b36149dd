"""Sources of randomness. Outside simulations and tests it is the operating system."""

import os
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
