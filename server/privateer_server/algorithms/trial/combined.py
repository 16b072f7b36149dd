"""The average effect, from a sum over segments and from people who were asked about everybody."""

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence import Average, Evidence

Array = NDArray[np.float64]


def combined(summed: Evidence, everybody: Evidence | None) -> Average:
    """Return average effects after the last look; without people asked about everybody, of the sum alone."""
    if everybody is None:
        return summed.average
    return joined(summed.average, everybody.average, weight_of(summed, everybody))


def combined_scores(summed: Evidence, everybody: Evidence | None) -> Array:
    """Return scores of average effects at each look, (looks, K); nan until both are ready."""
    if everybody is None:
        return summed.average_scores
    weight = weight_of(summed, everybody)
    return np.asarray(np.sqrt(weight) * everybody.average_scores + np.sqrt(1 - weight) * summed.average_scores)


def weight_of(summed: Evidence, everybody: Evidence) -> float:
    """Return the share of the planned information that people have who are asked about everybody."""
    direct = everybody.design.precision
    return direct / (direct + summed.design.precision)


def joined(summed: Average, direct: Average, weight: float) -> Average:
    """Join two averages of different people.

    Scores are added with public weights, a and b with a^2 + b^2 = 1, as those of stages are (Lehmacher and Wassmer
    1999): looks then correlate as those of each part do, whatever either varies by. The estimate is the one that has
    this score: both, weighted with a and b over their standard deviations.

    Parameters
    ----------
    summed, direct
        The sum over segments, and the average of people who were asked about everybody.
    weight
        Share of the planned information that the latter have, a^2.
    """
    ready = summed.ready & direct.ready & (summed.variance > 0) & (direct.variance > 0) & np.isfinite(summed.variance)
    a = np.sqrt(weight / np.where(ready, direct.variance, 1.0))
    b = np.sqrt((1 - weight) / np.where(ready, summed.variance, 1.0))
    estimate = (a * direct.estimate + b * summed.estimate) / (a + b)
    return Average(estimate, np.where(ready, 1 / np.square(a + b), np.inf), ready, summed.contributions)
