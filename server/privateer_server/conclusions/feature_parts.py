"""Parts of the people by one feature, of which rules are made: below a number, some of the levels, or missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.facts import Among, Condition, Level
from privateer_core.spec.features import Feature

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
_PARTS: Final = 160
"""Parts of all features together, about."""
_OF_LEVELS: Final = 240
"""Parts of all features with levels together, at most: a search takes time with the square of their number."""
_FEWEST: Final = 3
"""Cuts of a number at least."""
_GRID: Final = 8
"""Where nothing says where a number matters it is cut at multiples of one part in so many."""


@dataclass(frozen=True)
class FeaturePart:
    """Those people who have some values of a feature."""

    # of the feature
    name: str
    feature: Feature
    # places of its numbers, from the first to below the second; nobody has a number if they are the same
    low: float = 0.0
    high: float = 1.0
    slots: frozenset[int] | None = None  # its levels, by their places among its codes; None for a number
    missing: bool = False  # whether people without a number are among them

    def __and__(self, other: "FeaturePart") -> "FeaturePart":
        """Return those who are in both parts of the same feature."""
        slots = None if self.slots is None or other.slots is None else self.slots & other.slots
        ends = max(self.low, other.low), min(self.high, other.high)
        return FeaturePart(self.name, self.feature, *ends, slots, self.missing and other.missing)

    def holds(self, columns: Array) -> Bools:
        """Tell who is among them, (n,), by the feature's columns, (n, columns)."""
        block = self.feature.blocks[0]
        if self.slots is not None:
            return np.isin(_slots(columns, block.codes), sorted(self.slots))
        # The highest number of all belongs to the last part.
        inside = (columns[:, 0] >= self.low) & ((columns[:, 0] < self.high) | (self.high == 1.0))
        if not self.feature.missing:
            return np.asarray(inside)
        return np.where(columns[:, 1] > 0, self.missing, inside)

    @property
    def condition(self) -> Condition:
        """The same in the values of the feature."""
        if self.slots is not None:
            values = [value for slot in sorted(self.slots) for value in self._values(slot)]
            known: list[Level] = list(dict.fromkeys(one for one in values if one is not None))
            return Among(self.name, tuple(known), missing=None in values)
        if self.low >= self.high:
            return Among(self.name, (), missing=True)
        corners = np.array([self.low, 0.0]), np.array([self.high, 0.0])
        found = self.feature.condition(self.name, *(corner[: self.feature.columns] for corner in corners))
        return msgspec.structs.replace(found, missing=self.missing)

    def _values(self, slot: int) -> list[Level | None]:
        block = self.feature.blocks[0]
        bits = (block.codes[slot] >> np.arange(block.columns - 1, -1, -1)) & 1
        return list(self.feature.shown(bits / 2, (bits + 1) / 2))

    @property
    def whole(self) -> "FeaturePart":
        """All people, as a part by this feature."""
        block = self.feature.blocks[0]
        slots = frozenset(range(len(block.codes))) if block.codes else None
        return FeaturePart(self.name, self.feature, slots=slots, missing=self.feature.missing)


def _slots(columns: Array, codes: tuple[int, ...]) -> NDArray[np.int64]:
    powers = 1 << np.arange(columns.shape[1] - 1, -1, -1)
    found = np.searchsorted(np.array(codes), np.rint(columns).astype(np.int64) @ powers)
    return np.minimum(found, len(codes) - 1)


def parts_of(
    features: Mapping[str, Feature], contexts: Array, edges: tuple[Array, Array], likes: Array
) -> list[FeaturePart]:
    """Return the parts from which rules are chosen, the coarsest of each feature first.

    contexts (n, columns): people.
    edges: lower and upper corners of boxes, (boxes, columns) each: numbers are cut where boxes end.
    likes (n, options): by how much everybody's reward under an option is above that under the others.
    """
    most, made, start = max(_FEWEST, _PARTS // (2 * max(1, len(features)))), list[FeaturePart](), 0
    is_cut = any(len(_inner(edges, place)) for place in range(contexts.shape[1]))
    most_of_levels = _OF_LEVELS // max(1, sum(bool(feature.blocks[0].codes) for feature in features.values()))
    for name, feature in features.items():
        columns = slice(start, start := start + feature.columns)
        whole = FeaturePart(name, feature).whole
        if whole.slots is None:
            cuts = _inner(edges, columns.start)
            made += _of_number(whole, cuts[:most] if is_cut else _coarse(np.arange(1, _GRID) / _GRID)[:most])
        else:
            slots = _slots(contexts[:, columns], feature.blocks[0].codes)
            made += _of_levels(whole, slots, likes, most_of_levels)
    return made


def _inner(edges: tuple[Array, Array], column: int) -> Array:
    places = np.unique(np.concatenate([corner[:, column] for corner in edges]))
    return _coarse(places[(places > 0) & (places < 1)])


def _coarse(places: Array) -> Array:
    """Return places in order: halves first, then quarters, and so on; among equals from the left."""
    depth = np.array([float(place).as_integer_ratio()[1] for place in places.tolist()])
    return places[np.lexsort((places, depth))]


def _of_number(whole: FeaturePart, cuts: Array) -> Iterator[FeaturePart]:
    name, feature = whole.name, whole.feature
    for cut in cuts.tolist():
        for low, high in ((0.0, cut), (cut, 1.0)):
            yield FeaturePart(name, feature, low, high)
            if whole.missing:
                yield FeaturePart(name, feature, low, high, missing=True)
    if whole.missing:
        yield FeaturePart(name, feature, 0.0, 0.0, missing=True)
        yield FeaturePart(name, feature)


def _of_levels(whole: FeaturePart, slots: NDArray[np.int64], likes: Array, most: int) -> list[FeaturePart]:
    """Return the levels where an option is the best or beats another, and each level by itself and left out.

    Of more than ``most`` those are kept that gain most, if all who are in one get the option that is best for them.
    """
    count = len(whole.feature.blocks[0].codes)
    sums = np.stack([np.bincount(slots, one, count) for one in likes.T], axis=1)
    differences = sums[:, :, None] - sums[:, None, :]
    some = [sums.argmax(axis=1) == option for option in range(sums.shape[1])]
    some += [differences[:, one, other] > 0 for one, other in np.ndindex(differences.shape[1:]) if one != other]
    some += [np.arange(count) == slot for slot in range(count)]
    some += [np.arange(count) != slot for slot in range(count)]
    sets = list({one.tobytes(): one for one in some if 0 < one.sum() < count}.values())
    if len(sets) > most:
        totals = np.array(sets) @ sums
        gains = totals.max(axis=1) - totals[:, sums.sum(axis=0).argmax()]
        sets = [sets[place] for place in sorted(np.argsort(-gains, kind="stable")[:most].tolist())]
    return [FeaturePart(whole.name, whole.feature, slots=frozenset(np.flatnonzero(one).tolist())) for one in sets]
