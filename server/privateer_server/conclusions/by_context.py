"""The headline of an algorithm that chooses by context: rules for whom, and what they are expected to gain."""

import math

import msgspec
import numpy as np

from privateer_core.answer.conclusion import Conclusion, Headline, Rules
from privateer_core.answer.parts import Gain
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.measured_gain import gain_to_measure, measured, measured_headline
from privateer_server.conclusions.rule_search import ENOUGH, ENOUGH_OF_CHANCE
from privateer_server.conclusions.rule_words import short
from privateer_server.conclusions.rules import Advantage, Prospect, prospect_of, rules_of, sureness_of
from privateer_server.conclusions.wording import LearnedAnswer, people, plain, signed

_DIGITS = 6
_MORE_MAX = 50
"""Times the people so far that are worth naming."""


def context_findings(
    bare: Conclusion, findings: LearnedAnswer, expected: ExpectedRewards, policy: Policy
) -> Conclusion:
    """Return a conclusion with the rules of a policy that asks nobody; and headline and gain, if no test has them."""
    spec = findings.spec
    assert isinstance(spec, ArmsSpec)
    possible = expected if expected.differences else expected.within(spec.reward.low, spec.reward.high)
    prospect = prospect_of(spec.features, possible, policy, spec.playable)
    advantage = prospect.advantage(prospect.chosen, prospect.constant, prospect.people.weights)
    enough = ENOUGH if advantage.value > advantage.radius else ENOUGH_OF_CHANCE
    rules = rules_of(spec.options, spec.features, (spec.reward.low, spec.reward.high), prospect, enough)
    if expected.differences:
        return msgspec.structs.replace(bare, rules=rules)
    is_constant = len(rules.rules) == 1
    if found := measured(findings.answer.gain):
        of_all = _constant(findings, prospect, rules) if is_constant else measured_headline(findings, found, _by(rules))
        shown = msgspec.structs.replace(bare, rules=rules, headline=of_all, gain=found.gain, means=found.means)
        return msgspec.structs.replace(shown, is_measured=True)
    headline = _constant(findings, prospect, rules) if is_constant else _chosen(findings, prospect, rules, advantage)
    gain = None if is_constant else _gain(findings, prospect, advantage)
    means = None if gain is None or gain.value is None else _means(findings, prospect)
    surer = _surer(bare, advantage, rules)
    if means:
        surer = *surer, *gain_to_measure(spec)
    return msgspec.structs.replace(bare, rules=rules, headline=headline, gain=gain, means=means, surer=surer)


def _gain(findings: LearnedAnswer, prospect: Prospect, advantage: Advantage) -> Gain:
    option, radius = findings.spec.options[prospect.constant], advantage.radius
    if not math.isfinite(radius):
        return Gain(option, None, None, None, findings.answer.people)
    value, low, high = (round(advantage.value + by, _DIGITS) for by in (0.0, -radius, radius))
    return Gain(option, value, low, high, findings.answer.people)


def _means(findings: LearnedAnswer, prospect: Prospect) -> tuple[float, float]:
    """Return the mean rewards that are expected by context and of the best single option, within their bounds."""
    rows, weights, reward = np.arange(len(prospect.chosen)), prospect.people.weights, findings.spec.reward
    by_option = prospect.means[rows, prospect.chosen], prospect.means[:, prospect.constant]
    policy, constant = (min(max(float(weights @ one), reward.low), reward.high) for one in by_option)
    return round(policy, _DIGITS), round(constant, _DIGITS)


def _chosen(findings: LearnedAnswer, prospect: Prospect, rules: Rules, advantage: Advantage) -> Headline:
    """Say what choosing by context is expected to gain, or that this is not known."""
    option, radius = findings.spec.options[prospect.constant], advantage.radius
    by = _by(rules)
    low, high = advantage.value - radius, advantage.value + radius
    sureness = sureness_of(advantage.certainty)
    parts = None, option, *((advantage.value, low, high) if math.isfinite(radius) else (None, None, None))
    if sureness == "not known" or low <= 0:
        known = f": {signed(advantage.value, low, high)} is expected" if math.isfinite(radius) else ""
        sentence = f"it is not known whether choosing by {by} is better than {short(option)} for everybody{known}."
        return Headline("rules", findings.said(sentence), "not known", *parts)
    weights = prospect.people.weights
    constant = float(weights @ prospect.means[:, prospect.constant])
    figures = f"a mean reward of {plain(constant + advantage.value, radius)} is expected"
    best = (
        f"instead of {plain(constant, radius)} with {short(option)} for everybody: {signed(advantage.value, low, high)}"
    )
    return Headline("rules", findings.said(f"choose by {by}. By the rules below {figures} {best}."), sureness, *parts)


def _constant(findings: LearnedAnswer, prospect: Prospect, rules: Rules) -> Headline:
    """Say that everybody gets the same, and whether that is known to be the best."""
    [rule], options = rules.rules, findings.spec.options
    name = short(rule.option)
    if rule.next_best is None:
        sentence = f"everybody gets {name}, of which little is known."
        return Headline("one option", findings.said(sentence), "not known", rule.option)
    second = options.index(rule.next_best)
    given = np.full(len(prospect.chosen), options.index(rule.option))
    found = prospect.advantage(given, second, prospect.people.weights)
    low, high = found.value - found.radius, found.value + found.radius
    difference = signed(found.value, low, high)
    other = short(rule.next_best)
    if rule.sureness == "almost certain":
        against = f"{difference} against {other}, the next best, is expected"
        sentence = f"give everybody {name}: {against}; no rule for whom is known to do better."
    elif rule.sureness == "likely":
        sentence = f"everybody gets {name}, which is likely better than {other}: {difference} is expected."
    else:
        unknown = f"it is not known whether that is better than {other}"
        sentence = f"everybody gets {name}, and {unknown}: {difference} is expected."
    return Headline(
        "one option", findings.said(sentence), rule.sureness, rule.option, rule.next_best, found.value, low, high
    )


def _surer(bare: Conclusion, advantage: Advantage, rules: Rules) -> tuple[str, ...]:
    """Say how many people would tell that choosing by context pays, if it does as much as is expected."""
    asked, radius = bare.people, advantage.radius
    is_open = math.isfinite(radius) and 0 < advantage.value <= radius
    if len(rules.rules) == 1 or not asked or not is_open:
        return ()
    more = (radius / advantage.value) ** 2
    if more > _MORE_MAX:
        return (f"Choosing by context would gain so little that {_MORE_MAX} times as many people would not tell.",)
    return (f"If choosing by context gains as much as is expected now, {people(asked * more)} in all would tell.",)


def _by(rules: Rules) -> str:
    """List the features that rules ask for."""
    return _listed(dict.fromkeys(one.feature for rule in rules.rules for one in rule.where))


def _listed(names: dict[str, None]) -> str:
    words = [short(name) for name in names]
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"
