"""Seeded noise for simulations and tests; no session takes it."""

import numpy as np
from numpy.typing import NDArray


class SeededNoise:
    """Uniform words from a seeded generator."""

    def __init__(self, seed: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return ``count`` words, shape (count,)."""
        return self._rng.integers(0, 2**64, count, dtype=np.uint64)
