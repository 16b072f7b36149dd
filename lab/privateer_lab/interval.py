"""How sure a mean over runs is."""

import numpy as np
from numpy.typing import NDArray


def interval(values: NDArray[np.float64]) -> float | None:
    """Half of the 95 % interval of the mean of independent values, (n,), by the normal approximation; None for one.

    The approximation is for ten runs and more: with two the interval should be six times as wide.
    """
    return 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
