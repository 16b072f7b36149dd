"""The estimate of the one effect whose declared rule stopped a trial, with the bias of stopping taken out."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import information, stretches
from privateer_server.algorithms.trial.evidence import Evidence, rates

Array = NDArray[np.float64]

_HALVINGS: Final = 60


@dataclass(frozen=True)
class Stopped:
    """A median-unbiased estimate and its interval, in units of the difference that was tested.

    Not valid for other effects, nor after stopping for other reasons; repeated intervals are.
    """

    estimate: float
    low: float
    high: float


def stopped_effect(evidence: Evidence) -> Stopped:
    """Return the effect of a trial of one treatment in one segment, which a rule about it ended at its last look."""
    sums, design = evidence.stable, evidence.design
    rate, q, o, _ = (part[0, 0] for part in rates(sums))
    gain = rate / (rate - 2 * o) if design.counted else 1 / (q * design.segments[0])
    times, score = information(evidence.people, design.people), float(evidence.scores[-1, 0, 0])
    return stagewise(times, design.alpha, score, float(gain * np.sqrt(sums.variance[0, 0])))


def stagewise(times: tuple[float, ...], alpha: float, score: float, deviation: float) -> Stopped:
    """Order outcomes by look and side, then by size (Siegmund 1978; Tsiatis, Rosner and Mehta 1984).

    p(drift) is the probability of having crossed above earlier, or of a larger value here, and rises with the drift:
    limits where it is alpha/2 and 1 - alpha/2, the estimate where it is 1/2.

    Parameters
    ----------
    times
        Information fractions of the looks, the last the one that stopped the trial and crossed first, or the end.
    alpha
        1 - the level; the boundaries' own.
    score, deviation
        The difference over its standard deviation at that look, and the standard deviation.
    """
    if score < 0:
        mirrored = stagewise(times, alpha, -score, deviation)
        return Stopped(-mirrored.estimate, -mirrored.high, -mirrored.low)
    looks = stretches(times, alpha)
    value, scale = score * np.sqrt(times[-1]), deviation * np.sqrt(times[-1])

    def at_least(drift: Array) -> Array:
        earlier = sum((look.above(look.edge, drift) for look in looks[:-1]), np.zeros(len(drift)))
        return np.asarray(earlier + looks[-1].above(value, drift))

    wanted = np.array([0.5, alpha / 2, 1 - alpha / 2])
    reach = 10 / np.sqrt(looks[0].time) + abs(value) / times[-1]
    low, high = np.full(3, -reach), np.full(3, reach)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = at_least(middle) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    estimate, lower, upper = ((low + high) / 2 * scale).tolist()
    return Stopped(estimate, lower, upper)
