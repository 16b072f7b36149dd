"""What a test that is looked at again and again finds, and when."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import stretches

Array = NDArray[np.float64]

POWER: Final = 0.8
"""Probability with which a detectable effect is found."""
_HALVINGS: Final = 50


def power(times: tuple[float, ...], alpha: float, drift: Array) -> Array:
    """Probability (D,) that an effect of ``drift`` standard deviations at the end of plan crosses a boundary."""
    return np.asarray(sum((np.add(*look.crossed(drift)) for look in stretches(times, alpha)), np.zeros(len(drift))))


@lru_cache(maxsize=1024)
def drift_of(times: tuple[float, ...], alpha: float, probability: float = POWER) -> float:
    """The effect found with this probability, in standard deviations of the estimate at the end of plan."""
    low, high = 0.0, 20.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = power(times, alpha, np.array([middle]))[0] >= probability
        low, high = (low, middle) if enough else (middle, high)
    return (low + high) / 2


def decision_time(times: tuple[float, ...], alpha: float, drift: float) -> float:
    """Share of the plan's people after which an effect of ``drift`` is decided, on average; 1 if it is not."""
    looks, effect = stretches(times, alpha), np.array([drift])
    decided = [float(np.add(*look.crossed(effect))[0]) for look in looks]
    return sum(look.time * crossed for look, crossed in zip(looks, decided, strict=True)) + max(0.0, 1 - sum(decided))
