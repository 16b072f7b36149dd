"""The headline of an algorithm that chooses by context: its rules, and their expected gain."""

import math

import msgspec
import numpy as np

from privateer_core.answer.conclusion import Conclusion, Headline, Rules
from privateer_core.answer.parts import Gain
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.measured_gain import as_measured_gain, measured_headline, suggest_measurement
from privateer_server.conclusions.number_format import AnswerFacts, format_count, format_difference, format_mean
from privateer_server.conclusions.rule_search import MIN_GAIN_KEPT, MIN_UNCERTAIN_GAIN_KEPT
from privateer_server.conclusions.rule_words import join_words, shorten
from privateer_server.conclusions.rules import (
    Advantage,
    RewardForecast,
    choose_confidence_label,
    find_arm_rules,
    forecast_rewards,
)

_GAIN_DIGITS = 6
_MAX_FACTOR = 50  # the largest multiple of the current participants that is named


def add_context_findings(
    base: Conclusion, findings: AnswerFacts, expected: ExpectedRewards, policy: Policy
) -> Conclusion:
    """Add the rules of a final policy to a conclusion, and headline and gain if no test determines them."""
    spec = findings.spec
    assert isinstance(spec, ArmsSpec)
    bounded_rewards = expected if expected.differences else expected.within(spec.reward.low, spec.reward.high)
    forecast = forecast_rewards(spec.features, bounded_rewards, policy, spec.playable)
    advantage = forecast.estimate_advantage(forecast.chosen, forecast.best_constant, forecast.population.weights)
    min_gain_kept = MIN_GAIN_KEPT if advantage.value > advantage.half_width else MIN_UNCERTAIN_GAIN_KEPT
    rules = find_arm_rules(spec.options, spec.features, (spec.reward.low, spec.reward.high), forecast, min_gain_kept)
    if expected.differences:
        return msgspec.structs.replace(base, rules=rules)
    constant_headline = _single_headline(findings, forecast, rules) if len(rules.rules) == 1 else None
    if measured := as_measured_gain(findings.answer.gain):
        headline = constant_headline or measured_headline(findings, measured, _rule_features(rules))
        conclusion = msgspec.structs.replace(base, rules=rules, headline=headline, gain=measured.gain)
        return msgspec.structs.replace(conclusion, means=measured.means, is_measured=True)
    headline = constant_headline or _rules_headline(findings, forecast, rules, advantage)
    gain = None if constant_headline else _expected_gain(findings, forecast, advantage)
    means = None if gain is None or gain.value is None else _expected_means(findings, forecast)
    next_steps = _suggest_size(base, advantage, rules)
    if means:
        next_steps = *next_steps, *suggest_measurement(spec)
    return msgspec.structs.replace(base, rules=rules, headline=headline, gain=gain, means=means, next_steps=next_steps)


def _expected_gain(findings: AnswerFacts, forecast: RewardForecast, advantage: Advantage) -> Gain:
    """Return the expected gain of choosing by context over the best single option, without figures if unknown."""
    option, radius = findings.spec.options[forecast.best_constant], advantage.half_width
    if not math.isfinite(radius):
        return Gain(option, None, None, None, findings.answer.people)
    value, low, high = (round(advantage.value + offset, _GAIN_DIGITS) for offset in (0.0, -radius, radius))
    return Gain(option, value, low, high, findings.answer.people)


def _expected_means(findings: AnswerFacts, forecast: RewardForecast) -> tuple[float, float]:
    """Return the expected mean rewards by context and of the best single option, within their bounds."""
    rows, weights, reward = np.arange(len(forecast.chosen)), forecast.population.weights, findings.spec.reward
    means_by_policy = forecast.means[rows, forecast.chosen], forecast.means[:, forecast.best_constant]
    policy, constant = (min(max(float(weights @ means), reward.low), reward.high) for means in means_by_policy)
    return round(policy, _GAIN_DIGITS), round(constant, _GAIN_DIGITS)


def _rules_headline(findings: AnswerFacts, forecast: RewardForecast, rules: Rules, gain: Advantage) -> Headline:
    """Return the headline of choosing by context, with the expected gain if it is known."""
    option, radius = findings.spec.options[forecast.best_constant], gain.half_width
    features = _rule_features(rules)
    low, high = gain.value - radius, gain.value + radius
    confidence_label = choose_confidence_label(gain.certainty)
    fields = None, option, *((gain.value, low, high) if math.isfinite(radius) else (None, None, None))
    if confidence_label == "not known" or low <= 0:
        suffix = f": {format_difference(gain.value, low, high)} is expected" if math.isfinite(radius) else ""
        text = f"it is not known whether choosing by {features} is better than {shorten(option)} for everybody{suffix}."
        return Headline("rules", findings.phrase(text), "not known", *fields)
    weights = forecast.population.weights
    constant = float(weights @ forecast.means[:, forecast.best_constant])
    figures = f"a mean reward of {format_mean(constant + gain.value, radius)} is expected"
    comparison = f"instead of {format_mean(constant, radius)} with {shorten(option)} for everybody"
    difference = format_difference(gain.value, low, high)
    text = f"choose by {features}. By the rules below {figures} {comparison}: {difference}."
    return Headline("rules", findings.phrase(text), confidence_label, *fields)


def _single_headline(findings: AnswerFacts, forecast: RewardForecast, rules: Rules) -> Headline:
    """Return the headline of a single option for all participants, and whether it is known to be the best."""
    [rule], options = rules.rules, findings.spec.options
    name = shorten(rule.arm)
    if rule.next_best is None:
        sentence = f"everybody gets {name}, of which little is known."
        return Headline("one arm", findings.phrase(sentence), "not known", rule.arm)
    second = options.index(rule.next_best)
    assigned = np.full(len(forecast.chosen), options.index(rule.arm))
    gain = forecast.estimate_advantage(assigned, second, forecast.population.weights)
    low, high = gain.value - gain.half_width, gain.value + gain.half_width
    difference = format_difference(gain.value, low, high)
    other = shorten(rule.next_best)
    if rule.confidence_label == "almost certain":
        comparison = f"{difference} against {other}, the next best, is expected"
        sentence = f"give everybody {name}: {comparison}; no rule for whom is known to do better."
    elif rule.confidence_label == "likely":
        sentence = f"everybody gets {name}, which is likely better than {other}: {difference} is expected."
    else:
        uncertainty = f"it is not known whether that is better than {other}"
        sentence = f"everybody gets {name}, and {uncertainty}: {difference} is expected."
    figures = gain.value, low, high
    return Headline("one arm", findings.phrase(sentence), rule.confidence_label, rule.arm, rule.next_best, *figures)


def _suggest_size(base: Conclusion, advantage: Advantage, rules: Rules) -> tuple[str, ...]:
    """Return how many participants would show a gain of the expected size by context."""
    n, radius = base.people, advantage.half_width
    is_undecided = math.isfinite(radius) and 0 < advantage.value <= radius
    if len(rules.rules) == 1 or not n or not is_undecided:
        return ()
    factor = (radius / advantage.value) ** 2
    if factor > _MAX_FACTOR:
        return (f"Choosing by context would gain so little that {_MAX_FACTOR} times as many people would not tell.",)
    return (f"If choosing by context gains as much as is expected now, {format_count(n * factor)} in all would tell.",)


def _rule_features(rules: Rules) -> str:
    """Return the names of the features in the conditions of rules, as text."""
    names = dict.fromkeys(condition.feature for rule in rules.rules for condition in rule.where)
    return join_words([shorten(name) for name in names], "and")
