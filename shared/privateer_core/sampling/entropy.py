"""Sources of randomness: the operating system, except in simulations and tests."""

import math
import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from privateer_core.arrays import Array, Bools, Ints, Words


class NoiseSource(Protocol):
    """A source of independent uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return ``count`` uniform words, shape (count,)."""
        ...


RandomSource: TypeAlias = "NoiseSource | np.random.Generator"


class SecureNoise:
    """Entropy of the operating system. It has no seed, and no session accepts another source."""

    def words(self, count: int) -> Words:
        """Return ``count`` uniform words from ``os.urandom``, shape (count,)."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def draw_uniform(shape: tuple[int, ...], source: RandomSource) -> Array:
    """Draw uniform multiples of 2^-53 in [0, 1)."""
    if isinstance(source, np.random.Generator):
        return source.random(shape)
    return (source.words(math.prod(shape)) >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53


def sample_by_rejection(count: int, propose: Callable[[int], tuple[Ints, Bools]]) -> Ints:
    """Draw ``count`` integers by rejection, shape (count,).

    ``propose`` returns a number of candidates, and a mask of the accepted ones.
    """
    samples = np.empty(count, np.int64)
    missing = np.arange(count)
    while len(missing):
        candidates, is_accepted = propose(len(missing))
        samples[missing[is_accepted]] = candidates[is_accepted]
        missing = missing[~is_accepted]
    return samples
