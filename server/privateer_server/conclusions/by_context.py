"""The headline of an algorithm that chooses by context: its rules, and their expected or measured gain."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

import msgspec
import numpy as np

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, Rules
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import ABOVE_CHANCE, Gain, Intervals
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.rule_search import MIN_GAIN_KEPT, MIN_UNCERTAIN_GAIN_KEPT
from privateer_server.conclusions.rules import (
    Advantage,
    RewardForecast,
    choose_confidence_label,
    find_arm_rules,
    forecast_rewards,
)
from privateer_server.conclusions.texts import (
    AnswerFacts,
    choose_decimals,
    format_count,
    format_difference,
    format_mean,
    join_words,
    shorten,
)

_DEFAULT_SHARE: Final = 0.05
_MAX_SHARE: Final = 0.5
_PERCENT: Final = 100
_QUANTILE: Final = NormalDist().inv_cdf(0.975)


class MeasuredGain(NamedTuple):
    """A measured gain, with the bounds of its 95 % confidence interval."""

    gain: Gain
    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The half-width of the confidence interval."""
        return (self.high - self.low) / 2

    @property
    def means(self) -> tuple[float, float] | None:
        """The mean rewards by context and of the single option; None without them."""
        pair = self.gain.means
        return (pair[0].value, pair[-1].value) if pair else None

    @property
    def text(self) -> str:
        """The value and the confidence interval as text."""
        digits = choose_decimals(self.half_width)
        return f"{self.value:+z,.{digits}f} (95 % interval {self.low:z,.{digits}f} to {self.high:z,.{digits}f})"


def as_measured_gain(gain: Gain | None) -> MeasuredGain | None:
    """Return a gain as a measured gain; None if it was not measured."""
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return None
    return MeasuredGain(gain, gain.value, gain.low, gain.high)


def measured_headline(findings: AnswerFacts, measured: MeasuredGain, features: str) -> Headline:
    """Return the headline of the measured gain of choosing by features over the best single option."""
    option = shorten(measured.gain.arm)
    figures = measured.gain.arm, measured.value, measured.low, measured.high
    means_text = ""
    if measured.means:
        policy, constant = (format_mean(mean, measured.half_width) for mean in measured.means)
        means_text = f", a mean reward of {policy} instead of {constant}"
    if measured.low > 0:
        comparison = f"{option} for everybody, the best single option as far as is known"
        text = f"Choosing by context gives {measured.text} above {comparison}: measured{means_text}."
        confidence_label = choose_confidence_label(NormalDist().cdf(_QUANTILE * measured.value / measured.half_width))
        return Headline("rules", findings.phrase(f"choose by {features}. {text}"), confidence_label, None, *figures)
    if measured.high < 0:
        text = f"Choosing by {features} as was learned gives {measured.text} beside it: measured{means_text}."
        sentence = findings.phrase(f"give everybody {option}. {text}")
        return Headline("one arm", sentence, "almost certain", measured.gain.arm)
    doubt = f"it is not known whether choosing by {features} is better than {option} for everybody"
    return Headline("rules", findings.phrase(f"{doubt}: {measured.text} was measured."), "not known", None, *figures)


def find_gain_above_chance(answer: Answer) -> Estimate | None:
    """Return the estimated gain of choosing by context over random options, if it was measured."""
    estimates = (estimate for part in answer.all_of(Intervals) for estimate in part.estimates)
    return next((estimate for estimate in estimates if estimate.name == ABOVE_CHANCE), None)


def warn_of_chance_level(answer: Answer) -> tuple[str, ...]:
    """Warn if the measured mean of the single option does not exceed that of random options."""
    measured, chance = as_measured_gain(answer.gain), find_gain_above_chance(answer)
    if measured is None or chance is None:
        return ()
    # Among equal options a wrong guess usually differs by less than a quarter of the interval.
    if measured.value - chance.value <= (chance.high - chance.low) / 4:
        return ()
    option = shorten(measured.gain.arm)
    return (f"As measured, {option} for everybody earns no more than options by chance: another may be the best one.",)


def suggest_measurement(spec: ArmsSpec) -> tuple[str, ...]:
    """Describe which participants will measure the gain, or the setting for that; empty if it is impossible."""
    table = spec.experiment
    if not spec.capabilities.further_questions or table.reports_per_person > 1:
        return ()
    if spec.gain_people:
        return (f"The gain is what the model expects; the last {format_count(spec.gain_people)} will measure it.",)
    share = max(_DEFAULT_SHARE, math.ceil(_PERCENT * spec.min_gain_participants / table.horizon) / _PERCENT)
    if share > _MAX_SHARE:
        return (f"Nobody measured the gain: that takes {format_count(2 * spec.min_gain_participants)} in all.",)
    participants = f"the last {share:.0%} of the people do, in the next experiment"
    setting = f"With experiment.evaluation_fraction = {share:g} {participants}"
    return (f"Nobody measured the gain: it is what the model expects. {setting}.",)


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
    option, radius = findings.spec.options[forecast.best_constant], advantage.half_width
    if not math.isfinite(radius):
        return Gain(option, None, None, None, findings.answer.people)
    value, low, high = (round(advantage.value + offset, _GAIN_DIGITS) for offset in (0.0, -radius, radius))
    return Gain(option, value, low, high, findings.answer.people)


def _expected_means(findings: AnswerFacts, forecast: RewardForecast) -> tuple[float, float]:
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
    names = dict.fromkeys(condition.feature for rule in rules.rules for condition in rule.where)
    return join_words([shorten(name) for name in names], "and")
