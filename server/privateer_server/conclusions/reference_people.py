"""A public reference population: people at places that the spec declares, weighted by what is known of who comes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.categories import Ordinal
from privateer_core.spec.columns import MISSING_PLACE, codes_within
from privateer_core.spec.context import inhabited
from privateer_core.spec.features import Feature

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
_PEOPLE: Final = 4096
_IN_A_BOX: Final = 4
"""People in a box at least: a cut through it parts them about as it parts the box."""
_MISSING: Final = 0.1
"""Share of people without a number in a box that holds both, as nothing is known of it."""


@dataclass(frozen=True)
class ReferencePeople:
    """People of whom none exists."""

    contexts: Array  # shape (n, columns): encoded, in [0, 1]
    weights: Array  # shape (n,): share of all people that each stands for
    boxes: NDArray[np.int64]  # shape (n,): the box that each is in


def people_in(features: Mapping[str, Feature], lower: Array, upper: Array, shares: Array) -> ReferencePeople:
    """Return people spread evenly over boxes, the same ones every time.

    features: those of the spec, which say where anybody can be.
    lower, upper (boxes, columns): corners.
    shares (boxes,): share of the people in each.
    """
    rows = np.flatnonzero(inhabited(features, lower, upper) & (shares > 0))
    each = max(_IN_A_BOX, _PEOPLE // max(1, len(rows)))
    boxes = np.repeat(rows, each)
    places = _spread(len(boxes), 2 * len(features))
    contexts, start = np.zeros((len(boxes), lower.shape[1])), 0
    for number, feature in enumerate(features.values()):
        columns = slice(start, start := start + feature.columns)
        pair = places[:, 2 * number : 2 * number + 2]
        contexts[:, columns] = _within(feature, lower[boxes, columns], upper[boxes, columns], pair)
    weights = shares[boxes] / each
    return ReferencePeople(contexts, weights / weights.sum(), boxes)


def people_drawn(features: Mapping[str, Feature], draw: Callable[[Array], Array]) -> ReferencePeople:
    """Return people whom ``draw`` makes of places (n, features, 2) in [0, 1], the same ones every time."""
    contexts = draw(_spread(_PEOPLE, 2 * len(features)).reshape(_PEOPLE, len(features), 2))
    return ReferencePeople(contexts, np.full(_PEOPLE, 1 / _PEOPLE), np.zeros(_PEOPLE, np.int64))


def _spread(count: int, columns: int) -> Array:
    """Return points (count, columns) of low discrepancy: multiples of irrational numbers (Kronecker; Roberts 2018)."""
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (columns + 1))
    steps = root ** -np.arange(1.0, columns + 1)
    return np.asarray((0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0)


def _within(feature: Feature, lower: Array, upper: Array, places: Array) -> Array:
    """Return columns (n, columns) of people in boxes by their corners, from places (n, 2) in [0, 1]."""
    block = feature.blocks[0]
    if block.codes:
        return _coded(codes_within(block, lower, upper), np.array(block.codes), block.columns, places[:, 0])
    low, high = lower[:, 0], upper[:, 0]
    numbers = low + places[:, 0] * (high - low)
    must_miss: Bools = np.zeros(len(low), np.bool_)
    if isinstance(feature, Ordinal):
        middles = feature.places(np.arange(len(feature.levels), dtype=np.float64))
        allowed = (middles >= low[:, None]) & (middles < high[:, None])
        numbers, must_miss = middles[_chosen(allowed, places[:, 0])], np.asarray(~allowed.any(axis=1))
    if not feature.missing:
        return np.asarray(numbers[:, None])
    can_miss = (upper[:, 1] == 1) & (low <= MISSING_PLACE) & (high > MISSING_PLACE)
    misses = can_miss & (must_miss | (lower[:, 1] > 0) | (places[:, 1] < _MISSING))
    return np.stack([np.where(misses, MISSING_PLACE, numbers), misses], axis=1)


def _coded(allowed: Bools, codes: NDArray[np.int64], columns: int, places: Array) -> Array:
    chosen = codes[_chosen(allowed, places)]
    return np.asarray((chosen[:, None] >> np.arange(columns - 1, -1, -1)) & 1, np.float64)


def _chosen(allowed: Bools, places: Array) -> NDArray[np.int64]:
    """Return one of those that are allowed, (n, levels), for each place; the first where none is."""
    counts = np.maximum(allowed.sum(axis=1), 1)
    rank = np.minimum((places * counts).astype(np.int64), counts - 1)
    return np.asarray((allowed.cumsum(axis=1) > rank[:, None]).argmax(axis=1))
