"""Intervals of a ratio of two uncertain numbers."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def fieller(
    top: Array, top_variance: Array, bottom: Array, bottom_variance: Array, critical: float
) -> tuple[Array, Array]:
    """Ends of {x: |top - x bottom| <= critical sd(top - x bottom)}, for independent errors (Fieller 1954).

    Infinite where the bottom is not told from 0 at this critical value: then no ratio is ruled out on one side at
    least. At x = 0 the set is that of the top alone, so it leaves 0 out exactly where the top is told from 0.
    """
    squared = critical**2
    a = np.square(bottom) - squared * bottom_variance
    c = np.square(top) - squared * top_variance
    bounded = (a > 0) & np.isfinite(c)
    a, b, c = np.where(bounded, a, 1.0), np.where(bounded, top * bottom, 0.0), np.where(bounded, c, 0.0)
    root = np.sqrt(np.maximum(np.square(b) - a * c, 0.0))
    return np.where(bounded, (b - root) / a, -np.inf), np.where(bounded, (b + root) / a, np.inf)
