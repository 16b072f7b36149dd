"""P-values of several effects, corrected for their number."""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.weighted_sums import Sums

Array = NDArray[np.float64]
Correction = Literal["holm", "bh"]


def holm(p_values: Array) -> Array:
    """Return adjusted p-values: at most alpha, they name a true null with that probability at most (Holm 1979)."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    adjusted = np.maximum.accumulate(flat[order] * np.arange(len(flat), 0, -1))
    return _back(adjusted, order, p_values)


def benjamini_hochberg(p_values: Array) -> Array:
    """Return adjusted p-values: of those at most alpha, a share of alpha at most are true nulls on average."""
    flat = p_values.ravel()
    order = np.argsort(flat)
    scaled = flat[order] * len(flat) / np.arange(1, len(flat) + 1)
    return _back(np.minimum.accumulate(scaled[::-1])[::-1], order, p_values)


def _back(adjusted: Array, order: NDArray[np.int64], like: Array) -> Array:
    found = np.empty(len(order))
    found[order] = np.minimum(adjusted, 1.0)
    return found.reshape(like.shape)


_CORRECTIONS: Final = {"holm": holm, "bh": benjamini_hochberg}


def corrected(p_values: Array, sums: Sums, correction: Correction) -> Array:
    """Return p-values (J, K) adjusted for all effects; where nobody was counted there is none."""
    adjusted, somebody = np.ones(p_values.shape), sums.somebody
    adjusted[somebody] = _CORRECTIONS[correction](p_values[somebody])
    return adjusted
