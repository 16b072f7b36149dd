"""Rules for whom: what a policy gives, put into a few sentences, with what is expected of it and how surely."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.conclusion import Rule, Rules, Sureness
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.spec.features import Feature
from privateer_server.conclusions.feature_parts import FeaturePart, parts_of
from privateer_server.conclusions.reference_people import ReferencePeople, people_drawn, people_in
from privateer_server.conclusions.rule_search import ENOUGH, FoundRule, RuleList, search
from privateer_server.conclusions.rule_words import in_words

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
CERTAIN: Final = 0.98
"""Where two options are equal, one is called almost certain with probability .04, since either may seem better."""
LIKELY: Final = 0.9
_ALL: Final = 1 - 1e-6
"""Rules say what tests decided of everybody, if seven can."""
RULE_DIGITS: Final = 4
_CERTAIN_MOST: Final = 0.9999
"""No probability by a model is said to be higher."""
_DECIDED: Final[tuple[Sureness, ...]] = ("decided", "decided against the control", "decided on average", "not known")
"""What tests decide, the surest first."""


def sureness_of(certainty: float) -> Sureness:
    """Return a probability in words."""
    return "almost certain" if certainty >= CERTAIN else "likely" if certainty >= LIKELY else "not known"


@dataclass(frozen=True)
class Advantage:
    """How much more of something is expected than of something else, and the standard deviation of that."""

    value: float
    deviation: float

    @property
    def certainty(self) -> float:
        """The probability that it is above 0."""
        if not math.isfinite(self.deviation):
            return 0.5
        return NormalDist().cdf(self.value / self.deviation) if self.deviation > 0 else float(self.value > 0)

    @property
    def radius(self) -> float:
        """Half of its interval of 95 %."""
        return NormalDist().inv_cdf(0.975) * self.deviation


@dataclass(frozen=True)
class Prospect:
    """What is expected for people of a reference population."""

    # they, and what a policy gives them, (n,)
    people: ReferencePeople
    chosen: Ints
    expected: ExpectedRewards  # what they rest on
    # shape (n, options)
    means: Array
    deviations: Array
    playable: Ints  # options that anybody can get

    def advantage(self, options: Ints, other: int, some: Array) -> Advantage:
        """Return by how much ``options`` (n,) are better than another for people with weights ``some``, (n,)."""
        rows, weights = np.arange(len(some)), np.where(options == other, 0.0, some / some.sum())
        signs = np.zeros_like(self.means)
        signs[rows, options] += weights
        signs[:, other] -= weights
        return Advantage(float((signs * self.means).sum()), self.expected.deviation(self.people.contexts, signs))

    @property
    def constant(self) -> int:
        """The option that is best if everybody gets the same."""
        return int(self.playable[(self.people.weights @ self.means[:, self.playable]).argmax()])


def prospect_of(
    features: Mapping[str, Feature], expected: ExpectedRewards, policy: Policy, playable: Sequence[bool]
) -> Prospect:
    """Return what is expected where a policy decides that asks nobody, and has no use for coins."""
    if expected.draw:
        people = people_drawn(features, expected.draw)
    else:
        people = people_in(features, expected.lower, expected.upper, expected.shares.people)
    chosen = policy.decide(people.contexts, np.zeros(len(people.weights), np.uint32)).arms
    return Prospect(people, chosen, expected, *expected.at(people.contexts), np.flatnonzero(playable))


def rules_of(
    options: Sequence[str],
    features: Mapping[str, Feature],
    bounds: tuple[float, float],
    prospect: Prospect,
    enough: float = ENOUGH,
) -> Rules:
    """Return the rules, of all people whom the spec allows for.

    bounds: those of rewards: means are within them.
    enough: the share of the policy's gain that rules must keep, if seven can.
    """
    people, means, expected = prospect.people, prospect.means, prospect.expected
    edges, is_tested = (expected.lower, expected.upper), expected.decided is not None
    # What tests decided is the policy, whatever estimates say: its rules are to say who gets what, of everybody.
    worth = np.eye(means.shape[1])[prospect.chosen] if is_tested else means
    likes = people.weights[:, None] * worth
    parts = parts_of(features, people.contexts, edges, likes - likes.mean(axis=1, keepdims=True))
    columns, start = dict[str, slice](), 0
    for name, feature in features.items():
        columns[name] = slice(start, start := start + feature.columns)
    held = [one.holds(people.contexts[:, columns[one.name]]) for one in parts]
    held_by = np.array(held).reshape(-1, len(people.weights))
    found = search(held_by, likes, prospect.chosen, _ALL if is_tested else enough)
    first, alone = found.first, len(found.rules) == 1
    made = []
    for place, one in enumerate(found.rules):
        some = people.weights * (first == place)
        if some.sum() > 0:
            made.append(_rule(options, _joined(one, parts), one.option, some, prospect, bounds, alone=alone))
    is_constant = len(np.unique(prospect.chosen)) == 1
    kept = None if is_constant or is_tested else _rounded(found.gain_kept)
    return Rules(tuple(made), kept, f"{expected.shares.sentence}{_missed(found, prospect)}", expected.shares.source)


def _missed(found: RuleList, prospect: Prospect) -> str:
    """Say of how many people rules say something else than what tests decided of them."""
    if prospect.expected.decided is None:
        return ""
    given = np.array([one.option for one in found.rules])[found.first]
    missed = float(prospect.people.weights @ (given != prospect.chosen))
    return f" The policy gives {missed:.1%} of the people something else than these rules." if missed > 1 - _ALL else ""


def _joined(rule: FoundRule, parts: Sequence[FeaturePart]) -> list[FeaturePart]:
    """Return the parts of a rule, one a feature."""
    names = dict.fromkeys(parts[place].name for place in rule.parts)
    return [reduce(and_, (parts[place] for place in rule.parts if parts[place].name == name)) for name in names]


def _rule(
    options: Sequence[str],
    parts: Sequence[FeaturePart],
    option: int,
    some: Array,
    prospect: Prospect,
    bounds: tuple[float, float],
    *,
    alone: bool,
) -> Rule:
    weights, given, expected = some / some.sum(), np.full(len(some), option), prospect.expected
    averages = weights @ prospect.means
    others = [int(one) for one in prospect.playable if one != option]
    rivals = {other: prospect.advantage(given, other, some) for other in others}
    certainty = max(0.0, 1 - sum(1 - one.certainty for one in rivals.values()))
    is_known = bool(np.isfinite(prospect.deviations[some > 0]).all())
    second = max(others, key=lambda other: float(averages[other])) if others and is_known else None
    sureness = sureness_of(certainty)
    if expected.decided is not None:
        of_boxes = np.array([_DECIDED.index(one) for one in expected.decided])[prospect.people.boxes]
        of_people = np.where(prospect.chosen == option, of_boxes, len(_DECIDED) - 1)
        sureness = _DECIDED[int(of_people[some > 0].max())]
    return Rule(
        people=in_words(parts, alone=alone),
        where=tuple(one.condition for one in parts),
        option=options[option],
        share=_rounded(float(some.sum())),
        mean=None
        if expected.differences or not is_known
        else _rounded(min(max(float(averages[option]), bounds[0]), bounds[1])),
        next_best=None if second is None else options[second],
        difference=None if second is None else _rounded(rivals[second].value),
        certainty=None if expected.decided is not None else min(_CERTAIN_MOST, _rounded(certainty)),
        sureness=sureness,
    )


def _rounded(value: float) -> float:
    return round(value, RULE_DIGITS)
