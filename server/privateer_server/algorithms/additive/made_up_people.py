"""People made up from what is known of their shares by cell, for rules and what they gain."""

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_core.spec.columns import MISSING_PLACE

Array = NDArray[np.float64]


def contexts_of(cells: Cells, masses: Array, columns: int, places: Array) -> Array:
    """Return encoded contexts (n, columns) of people in whom features are independent, as the learner takes them.

    cells: those of all features.
    masses (terms,): shares of people by cell.
    columns: how many a context has.
    places (n, features, 2): in [0, 1]: the first tells a person's cell, the second where in it a number is.
    """
    contexts = np.zeros((len(places), columns))
    for number, feature in enumerate(cells.features):
        shares = np.maximum(masses[cells.of_feature(number)], 0.0).cumsum()
        own = np.searchsorted(shares / shares[-1], places[:, number, 0], side="right")
        _place(contexts, feature, np.minimum(own, feature.count - 1), places[:, number, 1])
    return contexts


def _place(contexts: Array, feature: ShapeCells, own: NDArray[np.int64], within: Array) -> None:
    """Write the columns of a feature for people in its cells ``own`` (n,), numbers at ``within`` (n,) of the cell."""
    if feature.codes:
        powers = np.arange(feature.columns - 1, -1, -1)
        bits = (np.array(feature.codes)[own][:, None] >> powers) & 1
        contexts[:, feature.start : feature.start + feature.columns] = bits
        return
    is_missing = own == feature.bins
    contexts[:, feature.start] = np.where(is_missing, MISSING_PLACE, (own + within) / feature.bins)
    if feature.missing:
        contexts[:, feature.start + 1] = is_missing
