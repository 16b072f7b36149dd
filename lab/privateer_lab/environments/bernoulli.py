"""Yes-or-no rewards."""

import numpy as np
from numpy.typing import NDArray


def played(means: NDArray[np.float64], arms: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Rewards 0 or 1 with the expectation of the arms played; ``means`` (n, arms), ``arms`` and result (n,)."""
    return (rng.random(len(arms)) < means[np.arange(len(arms)), arms]).astype(np.float64)
