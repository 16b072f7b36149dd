"""Constants of paper 1's public code that the paper leaves open or has otherwise."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.experiment import Spec

_SOURCES: Final = 2
"""Auxiliary sources that the published rows without auxiliary data name: they only loosen the depth's bound."""
_FAVOUR: Final = 1.2
_TIE: Final = 0.01


def effective_people(spec: Spec) -> float:
    """People times min(1, epsilon)^2, at least 2: what C_n = 2 log2 of it is taken of, and the warm start."""
    return max(2.0, spec.experiment.horizon * min(1.0, spec.privacy.bound) ** 2)


def warm_start(spec: Spec) -> int:
    """People before arms of a bin may be dropped, and arms favoured."""
    return int(math.log2(effective_people(spec))) ** 2


def deepest(spec: Spec) -> int:
    """Most halvings of a bin."""
    d, n = spec.dimension, 2 * spec.experiment.horizon * (_SOURCES + 1)
    known = min(math.log2(n) / (2 + d), math.log2(max(1.0, n * spec.privacy.bound**2)) / (2 + 2 * d))
    return int(known * d)


def favoured_shares(
    means: NDArray[np.float64], active: NDArray[np.bool_], told: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Chance of every arm, shape (bins, arms): of A active ones of K the best is 1.2 K/A times as likely as the worst.

    In between the logarithm is linear in the estimate. Bins that are not ``told``, shape (bins,), or whose active arms
    are within .01, play them all alike.
    """
    spread = np.where(active, means, -np.inf).max(axis=1) - np.where(active, means, np.inf).min(axis=1)
    most = np.log(_FAVOUR * means.shape[1] / active.sum(axis=1))
    slope = np.where(told & (spread >= _TIE), most / (spread + 1e-4), 0.0)
    weights = np.exp(means * slope[:, None]) * active
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
