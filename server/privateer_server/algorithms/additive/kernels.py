"""Covariances of functions of a feature's cells."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import ShapeCells

Array = NDArray[np.float64]
LENGTHS: Final = (0.125, 0.25, 0.5, 1.0)
"""Lengths tried over which a function is alike, by a feature's range."""
_ROUGH: Final = 0.05
"""Share of a function's variance that is each bin's own."""
_KEPT: Final = 512
"""Features whose kernels are kept, for every round asks for them."""


@lru_cache(_KEPT)
def kernels_of(feature: ShapeCells, lengths: tuple[float, ...] = LENGTHS) -> Array:
    """Return covariances, (kernels, cells, cells): Matern 3/2 between bins of several lengths, none between levels.

    Bins of a circle are apart by its chords: a Matern 3/2 of arcs is no covariance (Gneiting 2013).
    """
    if not feature.bins:
        return np.eye(feature.count)[None]
    places = np.arange(feature.bins) / feature.bins
    arcs = np.abs(places[:, None] - places)
    between = np.sin(np.pi * arcs) / np.pi if feature.cyclic else arcs
    found = []
    for length in lengths:
        away = np.sqrt(3) * between / length
        kernel = np.eye(feature.count)
        kernel[: feature.bins, : feature.bins] *= _ROUGH
        kernel[: feature.bins, : feature.bins] += (1 - _ROUGH) * (1 + away) * np.exp(-away)
        found.append(kernel)
    return np.array(found)
