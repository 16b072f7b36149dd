"""Rules that summarize a policy, and the reference population on which they are found."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from statistics import NormalDist
from typing import Final

import numpy as np

from privateer_core.answer.conclusion import ConfidenceLabel, Rule, Rules
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.spec.categories import Ordinal
from privateer_core.spec.columns import MISSING_PLACE, find_levels_in_boxes
from privateer_core.spec.context import find_inhabited_boxes
from privateer_core.spec.features import Feature
from privateer_server.conclusions.rule_search import (
    MIN_GAIN_KEPT,
    FeaturePart,
    RuleList,
    SearchedRule,
    build_feature_parts,
    search_rules,
)
from privateer_server.conclusions.texts import describe_parts

_N_PARTICIPANTS: Final = 4096
_MIN_PER_BOX: Final = 4
"""The minimum number of participants in a box, so that a cut through the box divides them in proportion."""
_ASSUMED_MISSING_SHARE: Final = 0.1
"""The assumed share of participants without a number in a box with and without numbers."""


@dataclass(frozen=True)
class Population:
    """A synthetic population of weighted participants."""

    contexts: Array  # shape (n, columns): encoded, in [0, 1]
    weights: Array  # shape (n,): the share of the population that each represents
    boxes: Ints  # shape (n,): the box of each


def spread_over_boxes(features: Mapping[str, Feature], lower: Array, upper: Array, shares: Array) -> Population:
    """Return a population with these shares of boxes, spread evenly in each by a deterministic sequence."""
    rows = np.flatnonzero(find_inhabited_boxes(features, lower, upper) & (shares > 0))
    n_per_box = max(_MIN_PER_BOX, _N_PARTICIPANTS // max(1, len(rows)))
    boxes = np.repeat(rows, n_per_box)
    points = _kronecker_points(len(boxes), 2 * len(features))
    contexts, start = np.zeros((len(boxes), lower.shape[1])), 0
    for feature_index, feature in enumerate(features.values()):
        columns = slice(start, start := start + feature.columns)
        feature_points = points[:, 2 * feature_index : 2 * feature_index + 2]
        contexts[:, columns] = _place_in_boxes(feature, lower[boxes, columns], upper[boxes, columns], feature_points)
    weights = shares[boxes] / n_per_box
    return Population(contexts, weights / weights.sum(), boxes)


def draw_population(features: Mapping[str, Feature], draw: Callable[[Array], Array]) -> Population:
    """Return the population that ``draw`` makes of a deterministic sequence of points (n, features, 2) in [0, 1]."""
    contexts = draw(_kronecker_points(_N_PARTICIPANTS, 2 * len(features)).reshape(_N_PARTICIPANTS, len(features), 2))
    return Population(contexts, np.full(_N_PARTICIPANTS, 1 / _N_PARTICIPANTS), np.zeros(_N_PARTICIPANTS, np.int64))


def _kronecker_points(n_points: int, columns: int) -> Array:
    """Return low-discrepancy points, (n_points, columns): multiples of irrationals (Kronecker; Roberts 2018)."""
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (columns + 1))
    steps = root ** -np.arange(1.0, columns + 1)
    return np.asarray((0.5 + np.arange(1, n_points + 1)[:, None] * steps) % 1.0)


def _place_in_boxes(feature: Feature, lower: Array, upper: Array, points: Array) -> Array:
    """Return a feature's columns (n, columns) within corners of boxes, from points (n, 2) in [0, 1]."""
    block = feature.blocks[0]
    if block.codes:
        levels = _choose_allowed(find_levels_in_boxes(block, lower, upper), points[:, 0])
        codes = np.array(block.codes)[levels, None]
        return np.asarray((codes >> np.arange(block.columns - 1, -1, -1)) & 1, np.float64)
    low, high = lower[:, 0], upper[:, 0]
    numbers = low + points[:, 0] * (high - low)
    is_forced: Bools = np.zeros(len(low), np.bool_)
    if isinstance(feature, Ordinal):
        centres = feature.positions(np.arange(len(feature.levels), dtype=np.float64))
        is_allowed = (centres >= low[:, None]) & (centres < high[:, None])
        numbers, is_forced = centres[_choose_allowed(is_allowed, points[:, 0])], np.asarray(~is_allowed.any(axis=1))
    if not feature.missing:
        return np.asarray(numbers[:, None])
    can_be_missing = (upper[:, 1] == 1) & (low <= MISSING_PLACE) & (high > MISSING_PLACE)
    is_missing = can_be_missing & (is_forced | (lower[:, 1] > 0) | (points[:, 1] < _ASSUMED_MISSING_SHARE))
    return np.stack([np.where(is_missing, MISSING_PLACE, numbers), is_missing], axis=1)


def _choose_allowed(is_allowed: Bools, points: Array) -> Ints:
    """Return the index of an allowed level, (n, levels), for each point; the first index if none is allowed."""
    counts = np.maximum(is_allowed.sum(axis=1), 1)
    rank = np.minimum((points * counts).astype(np.int64), counts - 1)
    return np.asarray((is_allowed.cumsum(axis=1) > rank[:, None]).argmax(axis=1))


CERTAIN_FROM: Final = 0.98
"""With two equal options either is called almost certainly better with a total probability of .04."""
LIKELY_FROM: Final = 0.9
_EXACT: Final = 1 - 1e-6  # the share of participants for whom rules agree with tests, if seven rules can
RULE_DIGITS: Final = 4
_MAX_CERTAINTY: Final = 0.9999  # the highest probability by a model that is reported
_DECISIONS: Final[tuple[ConfidenceLabel, ...]] = (
    "decided",
    "decided against the control",
    "decided on average",
    "not known",
)
"""The decisions of tests, the most certain first."""


def choose_confidence_label(certainty: float) -> ConfidenceLabel:
    """Return the verbal category of a probability."""
    return "almost certain" if certainty >= CERTAIN_FROM else "likely" if certainty >= LIKELY_FROM else "not known"


@dataclass(frozen=True)
class Advantage:
    """The expected difference of mean rewards between two policies, and its standard error."""

    value: float
    standard_error: float

    @property
    def certainty(self) -> float:
        """The probability that the difference is above 0."""
        if not math.isfinite(self.standard_error):
            return 0.5
        return NormalDist().cdf(self.value / self.standard_error) if self.standard_error > 0 else float(self.value > 0)

    @property
    def half_width(self) -> float:
        """The half-width of its 95 % interval."""
        return NormalDist().inv_cdf(0.975) * self.standard_error


@dataclass(frozen=True)
class RewardForecast:
    """The expected rewards of a reference population, and the choices of a policy."""

    # the population, and the policy's options, (n,)
    population: Population
    chosen: Ints
    expected: ExpectedRewards  # the model of expected rewards
    # shape (n, options)
    means: Array
    standard_deviations: Array
    playable: Ints  # options that can be chosen

    def estimate_advantage(self, options: Ints, other: int, weights: Array) -> Advantage:
        """Return the advantage of ``options`` (n,) over another option for participants of these weights, (n,)."""
        rows, shares = np.arange(len(weights)), np.where(options == other, 0.0, weights / weights.sum())
        signs = np.zeros_like(self.means)
        signs[rows, options] += shares
        signs[:, other] -= shares
        return Advantage(float((signs * self.means).sum()), self.expected.deviation(self.population.contexts, signs))

    @property
    def best_constant(self) -> int:
        """The best single option for the whole population."""
        return int(self.playable[(self.population.weights @ self.means[:, self.playable]).argmax()])


def forecast_rewards(
    features: Mapping[str, Feature], expected: ExpectedRewards, policy: Policy, playable: Sequence[bool]
) -> RewardForecast:
    """Build the expected rewards of a reference population under a deterministic policy."""
    if expected.draw:
        population = draw_population(features, expected.draw)
    else:
        population = spread_over_boxes(features, expected.lower, expected.upper, expected.shares.normalized)
    chosen = policy.decide(population.contexts, np.zeros(len(population.weights), np.uint32)).arms
    return RewardForecast(population, chosen, expected, *expected.at(population.contexts), np.flatnonzero(playable))


def find_arm_rules(
    options: Sequence[str],
    features: Mapping[str, Feature],
    bounds: tuple[float, float],
    forecast: RewardForecast,
    min_gain_kept: float = MIN_GAIN_KEPT,
) -> Rules:
    """Find the rules that summarize a policy; they keep ``min_gain_kept`` of its gain, if seven can."""
    population, means, expected = forecast.population, forecast.means, forecast.expected
    edges, is_tested = (expected.lower, expected.upper), expected.decided is not None
    # Tests decide the policy, regardless of estimates: its rules must agree with it for all participants.
    rewards = np.eye(means.shape[1])[forecast.chosen] if is_tested else means
    utilities = population.weights[:, None] * rewards
    parts = build_feature_parts(features, population.contexts, edges, utilities - utilities.mean(axis=1, keepdims=True))
    columns, start = dict[str, slice](), 0
    for name, feature in features.items():
        columns[name] = slice(start, start := start + feature.columns)
    is_in_part = [part.contains(population.contexts[:, columns[part.name]]) for part in parts]
    membership = np.array(is_in_part).reshape(-1, len(population.weights))
    rule_list = search_rules(membership, utilities, forecast.chosen, _EXACT if is_tested else min_gain_kept)
    first, is_only = rule_list.first, len(rule_list.rules) == 1
    rules = []
    for rule_index, rule in enumerate(rule_list.rules):
        weights = population.weights * (first == rule_index)
        if weights.sum() > 0:
            merged = _merge_parts(rule, parts)
            rules.append(_build_rule(options, merged, rule.arm, weights, forecast, bounds, is_only=is_only))
    is_constant = len(np.unique(forecast.chosen)) == 1
    gain_kept = None if is_constant or is_tested else round(rule_list.gain_kept, RULE_DIGITS)
    sentence = f"{expected.shares.sentence}{_mismatch_text(rule_list, forecast)}"
    return Rules(tuple(rules), gain_kept, sentence, expected.shares.source)


def _mismatch_text(rule_list: RuleList, forecast: RewardForecast) -> str:
    if forecast.expected.decided is None:
        return ""
    assigned = np.array([rule.arm for rule in rule_list.rules])[rule_list.first]
    share = float(forecast.population.weights @ (assigned != forecast.chosen))
    return f" The policy gives {share:.1%} of the people something else than these rules." if share > 1 - _EXACT else ""


def _merge_parts(rule: SearchedRule, parts: Sequence[FeaturePart]) -> list[FeaturePart]:
    names = dict.fromkeys(parts[index].name for index in rule.parts)
    return [reduce(and_, (parts[index] for index in rule.parts if parts[index].name == name)) for name in names]


def _build_rule(
    options: Sequence[str],
    parts: Sequence[FeaturePart],
    option: int,
    shares: Array,
    forecast: RewardForecast,
    bounds: tuple[float, float],
    *,
    is_only: bool,
) -> Rule:
    """Return a rule with its share, mean reward, next best option, and how certain it is that it is the best."""
    weights, assigned, expected = shares / shares.sum(), np.full(len(shares), option), forecast.expected
    mean_rewards = weights @ forecast.means
    others = [int(index) for index in forecast.playable if index != option]
    rivals = {other: forecast.estimate_advantage(assigned, other, shares) for other in others}
    certainty = max(0.0, 1 - sum(1 - advantage.certainty for advantage in rivals.values()))
    is_known = bool(np.isfinite(forecast.standard_deviations[shares > 0]).all())
    next_best = max(others, key=lambda other: float(mean_rewards[other])) if others and is_known else None
    confidence_label = choose_confidence_label(certainty)
    if expected.decided is not None:
        by_box = np.array([_DECISIONS.index(decision) for decision in expected.decided])[forecast.population.boxes]
        by_participant = np.where(forecast.chosen == option, by_box, len(_DECISIONS) - 1)
        confidence_label = _DECISIONS[int(by_participant[shares > 0].max())]
    mean = None
    if is_known and not expected.differences:
        mean = round(min(max(float(mean_rewards[option]), bounds[0]), bounds[1]), RULE_DIGITS)
    return Rule(
        people=describe_parts(parts, is_only_rule=is_only),
        where=tuple(part.condition for part in parts),
        arm=options[option],
        share=round(float(shares.sum()), RULE_DIGITS),
        mean=mean,
        next_best=None if next_best is None else options[next_best],
        difference=None if next_best is None else round(rivals[next_best].value, RULE_DIGITS),
        probability_best=None if expected.decided is not None else min(_MAX_CERTAINTY, round(certainty, RULE_DIGITS)),
        confidence_label=confidence_label,
    )
