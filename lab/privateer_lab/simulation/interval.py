"""How sure a mean over runs is."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit


def interval(values: NDArray[np.float64]) -> float | None:
    """Return half of the 95 % interval of the mean of independent values, (n,), by Student's t; None for one value.

    The interval is exact for normal values; for the regrets of a few runs it is approximate.
    """
    if len(values) < 2:
        return None
    return float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / len(values) ** 0.5)
