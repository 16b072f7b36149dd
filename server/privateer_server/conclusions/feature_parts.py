"""Subpopulations by one feature, the conditions of rules: an interval of a number, a set of levels, or missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from privateer_core.answer.facts import Among, Condition, Level
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.spec.features import Feature

_MAX_PARTS: Final = 160  # the approximate number of parts of all features together
_MAX_SETS: Final = 240
"""The maximum number of parts of all features with levels: a search takes time with the square of their number."""
_MIN_CUTS: Final = 3  # the minimum number of cuts of a numeric feature
_GRID: Final = 8  # without edges of boxes a numeric feature is cut at the edges of a grid of this size


@dataclass(frozen=True)
class FeaturePart:
    """The participants with values of a feature in an interval or a set of levels."""

    # the feature and its name
    name: str
    feature: Feature
    # the interval of encoded numbers, from low to below high; empty if they are equal
    low: float = 0.0
    high: float = 1.0
    levels: frozenset[int] | None = None  # its levels, as indices of codes; None for a number
    missing: bool = False  # whether it includes participants without a number

    def __and__(self, other: "FeaturePart") -> "FeaturePart":
        """Return the intersection of two parts of the same feature."""
        levels = None if self.levels is None or other.levels is None else self.levels & other.levels
        ends = max(self.low, other.low), min(self.high, other.high)
        return FeaturePart(self.name, self.feature, *ends, levels, self.missing and other.missing)

    def contains(self, columns: Array) -> Bools:
        """Return which participants are in the part, (n,), from the feature's columns, (n, columns)."""
        block = self.feature.blocks[0]
        if self.levels is not None:
            return np.isin(_find_levels(columns, block.codes), sorted(self.levels))
        # The maximum of the feature belongs to the last interval.
        is_in_range = (columns[:, 0] >= self.low) & ((columns[:, 0] < self.high) | (self.high == 1.0))
        if not self.feature.missing:
            return np.asarray(is_in_range)
        return np.where(columns[:, 1] > 0, self.missing, is_in_range)

    @property
    def condition(self) -> Condition:
        """The condition of the part in the original values of the feature."""
        if self.levels is not None:
            values = [value for code_index in sorted(self.levels) for value in self._values(code_index)]
            known_levels: list[Level] = list(dict.fromkeys(level for level in values if level is not None))
            return Among(self.name, tuple(known_levels), missing=None in values)
        if self.low >= self.high:
            return Among(self.name, (), missing=True)
        corners = np.array([self.low, 0.0]), np.array([self.high, 0.0])
        condition = self.feature.condition(self.name, *(corner[: self.feature.columns] for corner in corners))
        return msgspec.structs.replace(condition, missing=self.missing)

    def _values(self, code_index: int) -> list[Level | None]:
        block = self.feature.blocks[0]
        bits = (block.codes[code_index] >> np.arange(block.columns - 1, -1, -1)) & 1
        return list(self.feature.list_box_values(bits / 2, (bits + 1) / 2))

    @property
    def parent(self) -> "FeaturePart":
        """The part of this feature with all participants."""
        block = self.feature.blocks[0]
        levels = frozenset(range(len(block.codes))) if block.codes else None
        return FeaturePart(self.name, self.feature, levels=levels, missing=self.feature.missing)


def _find_levels(columns: Array, codes: tuple[int, ...]) -> Ints:
    powers = 1 << np.arange(columns.shape[1] - 1, -1, -1)
    indices = np.searchsorted(np.array(codes), np.rint(columns).astype(np.int64) @ powers)
    return np.minimum(indices, len(codes) - 1)


def build_feature_parts(
    features: Mapping[str, Feature], contexts: Array, edges: tuple[Array, Array], rewards: Array
) -> list[FeaturePart]:
    """Build the candidate parts of rules, the coarsest of each feature first.

    contexts (n, columns): encoded contexts of the reference population.
    edges: lower and upper corners of boxes, (boxes, columns) each: numbers are cut at their edges.
    rewards (n, options): each participant's weighted reward under an option less the mean of all options.
    """
    max_cuts, parts, start = max(_MIN_CUTS, _MAX_PARTS // (2 * max(1, len(features)))), list[FeaturePart](), 0
    has_edges = any(len(_find_inner_edges(edges, column)) for column in range(contexts.shape[1]))
    max_sets = _MAX_SETS // max(1, sum(bool(feature.blocks[0].codes) for feature in features.values()))
    for name, feature in features.items():
        columns = slice(start, start := start + feature.columns)
        parent = FeaturePart(name, feature).parent
        if parent.levels is None:
            grid = _sort_coarse(np.arange(1, _GRID) / _GRID)
            cuts = _find_inner_edges(edges, columns.start) if has_edges else grid
            parts += _list_number_parts(parent, cuts[:max_cuts])
        else:
            levels = _find_levels(contexts[:, columns], feature.blocks[0].codes)
            parts += _list_candidate_level_sets(parent, levels, rewards, max_sets)
    return parts


def _find_inner_edges(edges: tuple[Array, Array], column: int) -> Array:
    inner_edges = np.unique(np.concatenate([corner[:, column] for corner in edges]))
    return _sort_coarse(inner_edges[(inner_edges > 0) & (inner_edges < 1)])


def _sort_coarse(cuts: Array) -> Array:
    """Sort cuts by their denominators: halves first, then quarters, and so on; ties from the left."""
    denominators = np.array([float(cut).as_integer_ratio()[1] for cut in cuts.tolist()])
    return cuts[np.lexsort((cuts, denominators))]


def _list_number_parts(parent: FeaturePart, cuts: Array) -> Iterator[FeaturePart]:
    """Yield the intervals below and above each cut, with and without missing numbers, and these alone."""
    name, feature = parent.name, parent.feature
    for cut in cuts.tolist():
        for low, high in ((0.0, cut), (cut, 1.0)):
            yield FeaturePart(name, feature, low, high)
            if parent.missing:
                yield FeaturePart(name, feature, low, high, missing=True)
    if parent.missing:
        yield FeaturePart(name, feature, 0.0, 0.0, missing=True)
        yield FeaturePart(name, feature)


def _list_candidate_level_sets(parent: FeaturePart, levels: Ints, rewards: Array, max_sets: int) -> list[FeaturePart]:
    """Return the sets of levels where an option is best or beats another, and each single level and its complement.

    At most ``max_sets`` sets are returned, those with the largest gain if each set gets its best option.
    """
    n_levels = len(parent.feature.blocks[0].codes)
    sums = np.stack([np.bincount(levels, column, n_levels) for column in rewards.T], axis=1)
    differences = sums[:, :, None] - sums[:, None, :]
    subsets = [sums.argmax(axis=1) == option for option in range(sums.shape[1])]
    subsets += [differences[:, i, j] > 0 for i, j in np.ndindex(differences.shape[1:]) if i != j]
    subsets += [np.arange(n_levels) == level for level in range(n_levels)]
    subsets += [np.arange(n_levels) != level for level in range(n_levels)]
    sets = list({subset.tobytes(): subset for subset in subsets if 0 < subset.sum() < n_levels}.values())
    if len(sets) > max_sets:
        totals = np.array(sets) @ sums
        gains = totals.max(axis=1) - totals[:, sums.sum(axis=0).argmax()]
        sets = [sets[index] for index in sorted(np.argsort(-gains, kind="stable")[:max_sets].tolist())]
    level_sets = (frozenset(np.flatnonzero(subset).tolist()) for subset in sets)
    return [FeaturePart(parent.name, parent.feature, levels=level_set) for level_set in level_sets]
