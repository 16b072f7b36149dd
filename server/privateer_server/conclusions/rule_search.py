"""A greedy search for a short decision list that is nearly as good as a policy: exceptions precede general rules.

Conditions are parts of one feature: an interval of a number, a set of levels, or missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from privateer_core.answer.conclusion import RULES_MAX
from privateer_core.answer.facts import Among, Condition, Level
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.portable import first_largest
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
            values = [value for code_index in sorted(self.levels) for value in self._list_values(code_index)]
            known_levels: list[Level] = list(dict.fromkeys(level for level in values if level is not None))
            return Among(self.name, tuple(known_levels), missing=None in values)
        if self.low >= self.high:
            return Among(self.name, (), missing=True)
        corners = np.array([self.low, 0.0]), np.array([self.high, 0.0])
        condition = self.feature.condition(self.name, *(corner[: self.feature.columns] for corner in corners))
        return msgspec.structs.replace(condition, missing=self.missing)

    def _list_values(self, code_index: int) -> list[Level | None]:
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


MIN_GAIN_KEPT: Final = 0.98  # the share of the policy's gain at which the search stops
MIN_UNCERTAIN_GAIN_KEPT: Final = 0.8
"""The same share if it is uncertain whether there is a gain: more rules would fit noise."""
_MAX_PARTS_OF_RULE: Final = 4  # the maximum number of parts that a rule joins
_PART_COST: Final = 0.005
"""The cost of each part of a rule, as a share of the policy's gain, so that rules with fewer parts are preferred."""
_MIN_RULE_GAIN: Final = 0.002  # the minimum gain of a further rule, as a share of the policy's gain
_MIN_PART_GAIN: Final = 0.01  # the minimum gain of a further part in a rule, as a share of the policy's gain
_MAX_STEPS: Final = 12
_MAX_PAIRS: Final = 8  # the number of pairs of parts that are narrowed, for each option
_TOLERANCE: Final = 1e-9
_DECIMALS: Final = 9  # the decimals of gains, as shares of the policy's gain, by which pairs are ranked


@dataclass(frozen=True)
class SearchedRule:
    """A rule: participants in all of its parts get an option."""

    parts: tuple[int, ...]  # indices of the parts; empty: all other participants
    arm: int  # the option of the rule
    covers: Bools  # shape (n,): the participants to whom it applies, unless an earlier rule does


@dataclass(frozen=True)
class RuleList:
    """A decision list, with a default rule as the last, and the share of the policy's gain that it keeps."""

    rules: tuple[SearchedRule, ...]
    gain_kept: float

    @property
    def first(self) -> Ints:
        """The index of the first rule that applies to each participant, (n,)."""
        return np.asarray(np.stack([rule.covers for rule in self.rules]).argmax(axis=0))


def search_rules(is_in_part: Bools, rewards: Array, chosen: Ints, min_gain_kept: float = MIN_GAIN_KEPT) -> RuleList:
    """Return a short decision list whose value is near that of a policy.

    Greedy: each step evaluates all pairs of parts for each option, so that features that matter only together are
    found, narrows the best pairs by further parts, and keeps the best rule, which precedes the earlier rules. Rules
    and parts without further effect are removed at the end.

    is_in_part (parts, n): the participants in each candidate part.
    rewards (n, options): the reward of each option for each participant, times the participant's share.
    chosen (n,): the policy's options.
    min_gain_kept: the share of the policy's gain that rules must keep, if seven can.
    """
    indices = np.arange(len(chosen))
    options, totals = np.unique(chosen), rewards.sum(axis=0)
    best_constant = int(options[totals[options].argmax()])
    gain = float(rewards[indices, chosen].sum() - totals[best_constant])
    default_rule = SearchedRule((), best_constant, np.ones(len(chosen), np.bool_))
    if gain <= _TOLERANCE * max(1.0, float(np.abs(totals).max())):
        return RuleList((default_rule,), 1.0)
    task = _RuleSearch(is_in_part, rewards, options, gain, float(totals[best_constant]), min_gain_kept)
    rules: tuple[SearchedRule, ...] = (default_rule,)
    for _ in range(_MAX_STEPS):
        if len(rules) == RULES_MAX:  # exceptions may have made earlier rules unnecessary
            rules = task.prune(rules)
        can_improve = len(rules) < RULES_MAX and task.gain_kept(rules) < min_gain_kept
        new_rule = task.find_exception(rules) if can_improve else None
        if new_rule is None:
            break
        rules = task.choose_default_option((new_rule, *rules))
    rules = task.sort_by_size(task.prune(rules))
    return RuleList(rules, min(1.0, task.gain_kept(rules)))


@dataclass(frozen=True)
class _RuleSearch:
    """The candidate parts and rewards of a search, and the gain of the policy over the best constant option."""

    is_in_part: Bools
    rewards: Array
    options: Ints
    gain: float
    constant_value: float
    min_gain_kept: float

    @cached_property
    def indicators(self) -> Array:
        """The membership of parts as numbers, for matrix products."""
        return self.is_in_part.astype(np.float64)

    def assign_options(self, rules: tuple[SearchedRule, ...]) -> Ints:
        """Return the option of each participant by the first rule that applies, (n,)."""
        first_rule = np.stack([rule.covers for rule in rules]).argmax(axis=0)
        return np.asarray(np.array([rule.arm for rule in rules])[first_rule])

    def gain_kept(self, rules: tuple[SearchedRule, ...]) -> float:
        """Return the share of the policy's gain that rules keep."""
        value = float(self.rewards[np.arange(len(self.rewards)), self.assign_options(rules)].sum())
        return (value - self.constant_value) / self.gain

    def find_exception(self, rules: tuple[SearchedRule, ...]) -> SearchedRule | None:
        """Return the exception that improves most on a decision list; None without an improvement."""
        assigned, indicators = self.assign_options(rules), self.indicators
        gains = self.rewards[:, self.options] - self.rewards[np.arange(len(assigned)), assigned][:, None]
        max_gain_by_option = np.maximum(gains, 0.0).sum(axis=0)
        best_net_gain, best_rule = -np.inf, None
        for column in np.argsort(-max_gain_by_option, kind="stable").tolist():
            if max_gain_by_option[column] - _PART_COST * self.gain <= best_net_gain:
                break  # no rule for this option, or for those after it, can improve more
            option_gains = gains[:, column]
            # Rounding makes pairs of the same participants equal on any processor, and the first of them is taken.
            costs = _PART_COST * np.eye(len(indicators))
            joint = np.round((indicators * option_gains) @ indicators.T / self.gain + costs, _DECIMALS)
            for pair_index in np.argsort(-joint, axis=None, kind="stable")[:_MAX_PAIRS].tolist():
                pair = tuple(dict.fromkeys(divmod(pair_index, len(indicators))))
                rule, value = self._narrow_rule(pair, int(self.options[column]), option_gains)
                net_gain = value - _PART_COST * self.gain * len(rule.parts)
                if value >= _MIN_RULE_GAIN * self.gain and net_gain > best_net_gain + _TOLERANCE:
                    best_net_gain, best_rule = net_gain, rule
        return best_rule

    def _narrow_rule(self, parts: tuple[int, ...], option: int, option_gains: Array) -> tuple[SearchedRule, float]:
        """Return the rule of parts, with further parts added while that improves its gain, and its gain."""
        covers = np.asarray(self.is_in_part[list(parts)].all(axis=0))
        value = float(option_gains[covers].sum())
        while len(parts) < _MAX_PARTS_OF_RULE:
            sums = self.indicators @ (option_gains * covers)
            part = first_largest(sums)
            if sums[part] <= value + _MIN_PART_GAIN * self.gain:
                break
            parts, covers, value = (*parts, part), covers & self.is_in_part[part], float(sums[part])
        return SearchedRule(parts, option, covers), value

    def choose_default_option(self, rules: tuple[SearchedRule, ...]) -> tuple[SearchedRule, ...]:
        """Replace the option of the default rule by the best for the participants it covers, if that improves."""
        is_uncovered = ~np.stack([rule.covers for rule in rules[:-1]]).any(axis=0)
        option = int(self.options[self.rewards[is_uncovered][:, self.options].sum(axis=0).argmax()])
        candidate = (*rules[:-1], replace(rules[-1], arm=option))
        return candidate if self.gain_kept(candidate) > self.gain_kept(rules) + _TOLERANCE else rules

    def prune(self, rules: tuple[SearchedRule, ...]) -> tuple[SearchedRule, ...]:
        """Remove rules, and parts of rules, without which the list is as good, or good enough."""
        for rule in rules[:-1]:
            shorter = tuple(other for other in rules if other is not rule)
            if self._is_as_good(shorter, rules):
                rules = shorter
        for index in range(len(rules) - 1):
            for part in rules[index].parts:
                rest = tuple(other for other in rules[index].parts if other != part)
                wider = replace(rules[index], parts=rest, covers=np.asarray(self.is_in_part[list(rest)].all(axis=0)))
                candidate = (*rules[:index], wider, *rules[index + 1 :])
                if rest and self._is_as_good(candidate, rules):
                    rules = candidate
        return rules

    def _is_as_good(self, rules: tuple[SearchedRule, ...], old_rules: tuple[SearchedRule, ...]) -> bool:
        return self.gain_kept(rules) >= min(self.min_gain_kept, self.gain_kept(old_rules) - _TOLERANCE)

    def sort_by_size(self, rules: tuple[SearchedRule, ...]) -> tuple[SearchedRule, ...]:
        """Put rules for more participants first, if they are disjoint."""
        weights, order = [rule.covers.sum() for rule in rules], list(range(len(rules) - 1))
        for end in range(len(order) - 1, 0, -1):
            for index in range(end):
                rule, other = order[index], order[index + 1]
                is_disjoint = not bool((rules[rule].covers & rules[other].covers).any())
                if is_disjoint and weights[other] > weights[rule]:
                    order[index], order[index + 1] = other, rule
        return (*(rules[index] for index in order), rules[-1])
