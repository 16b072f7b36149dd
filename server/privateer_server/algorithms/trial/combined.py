"""The average effect, from a sum over segments and from people who were asked about everybody."""

import numpy as np

from privateer_server.algorithms.trial.evidence import Average, Evidence


def combined(summed: Evidence, everybody: Evidence | None) -> Average:
    """Return average effects after the last look.

    Both are of other people. Their scores are added with public weights, a and b with a^2 + b^2 = 1, as a design of
    several trials does (Lehmacher and Wassmer 1999): looks then correlate as those of each, whatever either varies by.
    The estimate is the one that has this score: both, weighted with a and b over their standard deviations.
    """
    own = summed.average
    if everybody is None:
        return own
    direct, weight = everybody.average, weight_of(summed, everybody)
    ready = own.ready & direct.ready & (own.variance > 0) & (direct.variance > 0) & np.isfinite(own.variance)
    a = np.sqrt(weight / np.where(ready, direct.variance, 1.0))
    b = np.sqrt((1 - weight) / np.where(ready, own.variance, 1.0))
    estimate = (a * direct.estimate + b * own.estimate) / (a + b)
    return Average(estimate, np.where(ready, 1 / np.square(a + b), np.inf), ready, own.contributions)


def combined_scores(summed: Evidence, everybody: Evidence | None) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return scores of average effects at each look, (looks, K); nan until both are ready."""
    if everybody is None:
        return summed.average_scores
    weight = weight_of(summed, everybody)
    return np.asarray(np.sqrt(weight) * everybody.average_scores + np.sqrt(1 - weight) * summed.average_scores)


def weight_of(summed: Evidence, everybody: Evidence) -> float:
    """Return the share of the planned information that people have who are asked about everybody."""
    direct = everybody.design.precision
    return direct / (direct + summed.design.precision)
