"""The people of paper 4's frontier: an effect of .3 sin(2 pi x) at x uniform in [0, 1], and rewards 0 or 1."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HEIGHT: Final = 0.3
BASE: Final = 0.5
UNIFORM: Final = HEIGHT / np.pi
"""Regret a person of flipping a coin: half the mean of |effect|."""
_FINE: Final = 4096


def means_of(bins: int) -> Array:
    """Mean rewards of control and treatment in equal bins, shape (bins, 2)."""
    edges = np.cos(2 * np.pi * np.arange(bins + 1) / bins)
    effect = HEIGHT * bins / (2 * np.pi) * (edges[:-1] - edges[1:])
    return np.stack([np.full(bins, BASE), BASE + effect], axis=1)


def losses_of(bins: int) -> Array:
    """What a person of each bin loses on average with control and with treatment, shape (bins, 2)."""
    effect = _effects(bins)
    return np.stack([np.maximum(effect, 0).mean(axis=1), np.maximum(-effect, 0).mean(axis=1)], axis=1)


def error_of(curve: Array) -> float:
    """Root mean square, over people, of the difference between a curve of equal steps and the effect."""
    return float(np.sqrt(np.square(curve[:, None] - _effects(len(curve))).mean()))


def _effects(bins: int) -> Array:
    """The effect at points of each bin, shape (bins, points)."""
    points = _FINE // bins
    return np.asarray(HEIGHT * np.sin(2 * np.pi * (np.arange(bins * points) + 0.5) / (bins * points)).reshape(bins, -1))
