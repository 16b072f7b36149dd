"""The headline of a test: the effect of an option against the control, and whether it is decided."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from privateer_core.answer.conclusion import ConfidenceLabel, Headline, NoRelative, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate, MeasuredRate
from privateer_core.answer.parts import Recommendations
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.texts import (
    REST,
    AnswerFacts,
    format_count,
    format_difference,
    format_mean,
    shorten,
)

_DECIDED: Final[ConfidenceLabel] = "decided"
_AGAINST_CONTROL: Final[ConfidenceLabel] = "decided against the control"
_NOT_KNOWN: Final[ConfidenceLabel] = "not known"
_DECISION_TEXTS: Final[dict[ConfidenceLabel, str]] = {
    _DECIDED: "decided",
    _AGAINST_CONTROL: "decided to be better than the control",
    "decided on average": "decided on average over all people",
}
_POWER = 0.8
_MAX_FACTOR = 100
_DECIMAL_SHARE_LIMIT = 0.02  # percentages of a mean below this share have a decimal
_PAIR_SIZE = 2
_MAX_LISTED = 3  # the number of rules or effects that a text lists


def estimate_baseline(spec: Spec, rate: MeasuredRate | None) -> Estimate | None:
    """Return the estimate of the control's mean reward in its unit, if it was measured."""
    if rate is None:
        return None
    reward = spec.reward
    value, low, high = (reward.low + reward.span * fraction for fraction in (rate.value, rate.low, rate.high))
    return Estimate(spec.options[0], value, low, high)


def explain_no_relative(effects: Sequence[Effect], baseline: Estimate | None) -> NoRelative | None:
    """Return why effects are not given relative to the control's mean; None if they are."""
    if baseline is None:
        return "no relative effects: the control's mean has no interval"
    if baseline.low <= 0:
        return "no relative effects: the control's mean may be 0 or less"
    if any(effect.group is not None for effect in effects):
        return "no relative effects of segments: the control's mean in each is not estimated"
    return None


def effects_headline(findings: AnswerFacts, rules: Rules | None, baseline: Estimate | None) -> Headline:
    """Return the headline of a test: the recommended option or options, and reasons for undecided effects."""
    control = findings.spec.options[0]
    if rules and len({rule.arm for rule in rules.rules}) > 1:
        return _segment_headline(findings, rules, baseline)
    overall_effects = [effect for effect in findings.answer.effects if effect.group is None]
    leader = _find_leading_effect(overall_effects)
    option = _find_common_option(findings, rules) or (leader.arm if leader and _is_better(leader) else control)
    if option != control:
        effect = next(effect for effect in overall_effects if effect.arm == option)
        return _new_option_headline(findings, effect, baseline)
    if leader is None or leader.value is None:
        reason = f": {leader.reason}" if leader else ""
        sentence = f"no effect has an interval{reason}. Keep {shorten(control)}, as nothing is decided."
        return Headline("one arm", findings.phrase(sentence), "not known", control, control)
    return _keep_headline(findings, overall_effects, leader, baseline)


def _find_common_option(findings: AnswerFacts, rules: Rules | None) -> str | None:
    if rules:
        return rules.rules[0].arm
    recommended = findings.answer.first_of(Recommendations)
    return recommended.rules[0].arm if recommended else None


def _is_better(effect: Effect) -> bool:
    return effect.is_decided and (effect.value or 0.0) > 0


def _new_option_headline(findings: AnswerFacts, effect: Effect, baseline: Estimate | None) -> Headline:
    """Return the headline of another option than the control for all participants, and whether it is decided."""
    control = findings.spec.options[0]
    name, change = shorten(effect.arm), _describe_effect(effect, control, baseline)
    if _is_better(effect):
        sentence, confidence_label = f"give everybody {name}: {change}. {_describe_decision(findings, name)}", _DECIDED
    else:
        uncertainty = f"it is not decided whether it is better than {shorten(control)}: {change}; {effect.reason}"
        sentence, confidence_label = f"everybody gets {name}, which is ahead, and {uncertainty}.", _NOT_KNOWN
    return _test_headline(findings, sentence, confidence_label, effect.arm, effect)


def _describe_decision(findings: AnswerFacts, name: str) -> str:
    recommended = findings.answer.first_of(Recommendations)
    if len(findings.spec.options) == _PAIR_SIZE or recommended is None or recommended.rules[0].is_decided:
        return "That is decided."
    other_options = "the other option" if len(findings.spec.options) == _PAIR_SIZE + 1 else "all other options"
    control = shorten(findings.spec.options[0])
    return f"That it is better than {control} is decided, and that {name} is better than {other_options} is not."


def _keep_headline(
    findings: AnswerFacts, overall: Sequence[Effect], rival: Effect, baseline: Estimate | None
) -> Headline:
    """Return the headline of keeping the control, with the effect of its strongest rival."""
    control = findings.spec.options[0]
    name, change = shorten(rival.arm), _describe_effect(rival, control, baseline)
    if rival.is_decided:
        is_all = all(effect.is_decided for effect in overall)
        better = "no other option is better" if is_all else "no other option is decided to be better"
        sentence = f"keep {shorten(control)}: {better}, and {name} changes rewards by {change}. That is decided."
        return _test_headline(findings, sentence, _DECIDED if is_all else _NOT_KNOWN, control, rival)
    uncertainty = f"it is not decided whether {name} is better than {shorten(control)}: {change}; {rival.reason}"
    return _test_headline(findings, f"{uncertainty}. Keep {shorten(control)}.", _NOT_KNOWN, control, rival)


def _test_headline(
    findings: AnswerFacts, sentence: str, confidence_label: ConfidenceLabel, option: str, effect: Effect
) -> Headline:
    control, figures = findings.spec.options[0], (effect.value, effect.low, effect.high)
    text = findings.phrase(sentence) + _describe_segment_effects(findings)
    return Headline("one arm", text, confidence_label, option, control, *figures, compared=effect.arm)


def _segment_headline(findings: AnswerFacts, rules: Rules, baseline: Estimate | None) -> Headline:
    """Return the headline of options by segment, with the decisions, and the overall effect."""
    control, gain = findings.spec.options[0], findings.answer.gain
    others = [rule.confidence_label for rule in rules.rules if rule.arm != control]
    confidence_label = _NOT_KNOWN if _NOT_KNOWN in others else _AGAINST_CONTROL
    if all(rule.confidence_label == _DECIDED for rule in rules.rules):
        confidence_label = _DECIDED
    if gain and gain.value is not None and gain.low is not None and gain.low > 0:
        interval = format_difference(gain.value, gain.low, gain.high)
        sentence = f"choose by segment. The rules below gain {interval} over {shorten(gain.arm)} for everybody."
        figures = gain.value, gain.low, gain.high
        return Headline("rules", findings.phrase(sentence), _DECIDED, None, gain.arm, *figures)
    rule_texts = [_describe_rule(rule, rules, control) for rule in rules.rules[:_MAX_LISTED]]
    n_unlisted = len(rules.rules) - len(rule_texts)
    rule_list = "; ".join([*rule_texts, *([f"and {n_unlisted} more rules below"] if n_unlisted else [])])
    leader = _find_leading_effect([effect for effect in findings.answer.effects if effect.group is None])
    overall = ""
    if leader and leader.value is not None:
        change = _describe_effect(leader, control, baseline)
        overall = f" Given to everybody, {shorten(leader.arm)} changes rewards by {change}: {leader.reason}."
    return Headline(
        "rules", findings.phrase(f"choose by segment: {rule_list}.") + overall, confidence_label, None, control
    )


def _describe_rule(rule: Rule, rules: Rules, control: str) -> str:
    population = f"to {rule.people}" if rule.people == REST else f"where {rule.people}"
    open_text = "kept, as nothing is decided to be better there" if rule.arm == control else "not decided"
    decision = _DECISION_TEXTS.get(rule.confidence_label, open_text)
    return f"{shorten(rule.arm)} {population} ({rule.share:.0%} of people, {rules.source}): {decision}"


def _find_leading_effect(overall_effects: Sequence[Effect]) -> Effect | None:
    """Return the largest overall effect that is decided to be better; else the largest known; else any, or None."""
    known_effects = [effect for effect in overall_effects if effect.value is not None]
    better_effects = [effect for effect in known_effects if _is_better(effect)]
    ranked = sorted(better_effects or known_effects, key=lambda effect: -(effect.value or 0.0))
    return next(iter([*ranked, *overall_effects]), None)


def _describe_effect(effect: Effect, control: str, baseline: Estimate | None) -> str:
    assert effect.value is not None
    text = f"{effect.value:+z.3g}" if effect.low is None else format_difference(effect.value, effect.low, effect.high)
    if baseline is None:
        return f"{text} against {shorten(control)}"
    radius = (baseline.high - baseline.low) / 2
    mean = f"{text} against {shorten(control)}'s mean of {format_mean(baseline.value, radius)}"
    if baseline.low <= 0:
        return mean
    share = effect.value / baseline.value
    return f"{mean}, which is {share:+.{int(abs(share) < _DECIMAL_SHARE_LIMIT)}%}"


def _describe_segment_effects(findings: AnswerFacts) -> str:
    group_effects = [effect for effect in findings.answer.effects if effect.group is not None]
    if not group_effects:
        return ""
    decided_effects = [effect for effect in group_effects if effect.is_decided and effect.value is not None]
    n_worse = sum((effect.value or 0.0) < 0 for effect in decided_effects)
    if not decided_effects:
        return " In no segment is an effect decided."
    n_better = len(decided_effects) - n_worse
    counts_text = f"{n_better:,} {'is' if n_better == 1 else 'are'} decided better, {n_worse:,} worse"
    return f" Of {len(group_effects):,} effects in segments {counts_text}."


def suggest_sizes(findings: AnswerFacts) -> tuple[str, ...]:
    """Suggest sample sizes that would decide the largest undecided overall effects.

    The width of an interval falls with the root of the sample size; with probability .8 an estimate is not nearer to 0
    than the effect less .84 standard errors. Without an interval the remark gives the reason.
    """
    n, answer = findings.answer.people, findings.answer
    open_effects = [effect for effect in answer.effects if effect.group is None and not effect.is_decided]
    if not n or answer.confidence is None:
        return ()
    critical_value = NormalDist().inv_cdf((1 + answer.confidence) / 2)
    factor = ((critical_value + NormalDist().inv_cdf(_POWER)) / critical_value) ** 2
    ranked = sorted(open_effects, key=lambda effect: -abs(effect.value or 0.0))[:_MAX_LISTED]
    return tuple(text for effect in ranked if (text := _suggest_size(effect, n * factor)))


def _suggest_size(effect: Effect, n: float) -> str:
    """Suggest the sample size that would decide an effect, or say why there is none; ``n`` decides this interval."""
    name = shorten(effect.arm)
    if effect.low is None or effect.high is None or not effect.value:
        return f"{name} has no interval, since {effect.reason}: {effect.remark}." if effect.remark else ""
    factor = ((effect.high - effect.low) / 2 / abs(effect.value)) ** 2
    if factor > _MAX_FACTOR:
        figure = format_difference(effect.value, effect.low, effect.high)
        return f"The estimate of {name}, {figure}, is so near 0 that it does not tell how many people would decide it."
    required = format_count(n * factor)
    direction = "better" if effect.value > 0 else "worse"
    return f"If {name} is as much {direction} as it looks now, {required} in all decide it with probability {_POWER:g}."
