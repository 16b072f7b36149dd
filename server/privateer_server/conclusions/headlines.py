"""Headlines of tests, of options by their estimated means, of points and of scores, and the sizes that would decide."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import msgspec

from privateer_core.answer.conclusion import ConfidenceLabel, Headline, NoRelative, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate, MeasuredRate
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import Recommendations
from privateer_core.answer.policy_view import Coefficients, Point
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.texts import (
    REST,
    AnswerFacts,
    format_count,
    format_difference,
    format_mean,
    format_number,
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


_MAX_LISTED_NAMES = 6  # the number of coordinates or features that a sentence names
_MAX_OPTIONS_FACTOR = 50


def _find_best_two(findings: AnswerFacts) -> tuple[Estimate, Estimate | None]:
    """Return the estimates of the recommended or best option, and of the best other option."""
    ranked = sorted(findings.answer.estimates, key=lambda estimate: -estimate.value)
    ranked = [estimate for estimate in ranked if estimate.name not in findings.spec.retired] or ranked
    leader = next((estimate for estimate in ranked if estimate.name == findings.answer.recommended), ranked[0])
    rivals = [estimate for estimate in ranked if estimate is not leader]
    return leader, rivals[0] if rivals else None


def options_headline(findings: AnswerFacts) -> Headline:
    """Return the headline of the best option against the next best, and whether it is decided."""
    best, second = _find_best_two(findings)
    name, radius = _option_label(findings, best.name), (best.high - best.low) / 2
    value, low, high = (format_mean(mean, radius) for mean in (best.value, best.low, best.high))
    mean = f"a mean reward of {value} ({low} to {high})"
    if second is None:
        return Headline("one arm", findings.phrase(f"only {name} is left, with {mean}."), "decided", best.name)
    rivals = [arm for arm in findings.answer.estimates if arm is not best and arm.high >= best.low]
    other, difference = _option_label(findings, second.name), best.value - second.value
    if _is_decided(findings, rivals):
        # Pairwise tests are sharper than simultaneous confidence intervals.
        against = f"{format_difference(difference, None, None)} against {other}, the next best"
        sentence = findings.phrase(f"give everybody {name}. It has {mean}, {against}, and is decided to be the best.")
        return Headline("one arm", sentence, "decided", best.name, second.name, difference)
    bounds = best.low - second.high, best.high - second.low
    rival_text = f"{other} or {len(rivals) - 1:,} more" if len(rivals) > 1 else other
    sentence = f"ahead is {name} with {mean}, but it is not known to be better than {rival_text}"
    text = findings.phrase(f"{sentence}: {format_difference(difference, *bounds)} against {other}.")
    return Headline("one arm", text, "not known", best.name, second.name, difference, *bounds)


def set_headline(findings: AnswerFacts, best_set: Table) -> Headline:
    """Return the headline of a set of best options, whose title has the bound of its error."""
    names = ", ".join(shorten(str(name)) for name, *_ in best_set.rows)
    return msgspec.structs.replace(options_headline(findings), sentence=findings.phrase(f"{best_set.title}: {names}."))


def _is_decided(findings: AnswerFacts, rivals: Sequence[Estimate]) -> bool:
    return findings.answer.basis == "decided against all other options" or not rivals


def _option_label(findings: AnswerFacts, name: str) -> str:
    """Return the label of an option: arms have names, and actions numbers."""
    return shorten(name) if isinstance(findings.spec, ArmsSpec) else f"action {name}"


def suggest_size(findings: AnswerFacts) -> tuple[str, ...]:
    """Suggest the sample size that would distinguish the best two options if their estimated difference is real."""
    best, second = _find_best_two(findings)
    n = findings.answer.people
    if second is None or not n or best.value <= second.value:
        return ()
    if _is_decided(findings, [arm for arm in findings.answer.estimates if arm is not best and arm.high >= best.low]):
        return ()
    factor = ((best.value - best.low + second.high - second.value) / (best.value - second.value)) ** 2
    if factor > _MAX_OPTIONS_FACTOR:
        return ("The best options are so close that even 50 times as many people would not tell which is better.",)
    return (f"If they differ as much as they seem to, {format_count(n * factor)} in all would tell which is better.",)


def point_headline(findings: AnswerFacts, point: Point) -> Headline:
    """Return the headline of the recommended point, and its maximum loss."""
    centre = list(point.centre.items())
    coordinates = [f"{shorten(name)} = {format_number(value)}" for name, value in centre[:_MAX_LISTED_NAMES]]
    if len(centre) > _MAX_LISTED_NAMES:
        coordinates.append(f"and {len(centre) - _MAX_LISTED_NAMES} more coordinates")
    loss = next(iter(findings.answer.estimates), None)
    sentence = findings.phrase(f"use the point {', '.join(coordinates)}.")
    if loss is None:
        return Headline("point", sentence, "not known")
    if loss.high >= findings.spec.reward.span:
        return Headline("point", f"{sentence} How much it may lose is not known yet.", "not known")
    bound = f"The average point so far loses at most {format_number(loss.high)} of mean reward against the best one."
    return Headline("point", f"{sentence} {bound}", "not known", control="the best point", low=-loss.high)


def scores_headline(findings: AnswerFacts, coefficients: Coefficients | None) -> Headline:
    """Return the headline of scores by features, and their gain."""
    gain = findings.answer.gain
    ranked = sorted(coefficients.shared.items(), key=lambda pair: -abs(pair[1])) if coefficients else []
    if not ranked:
        sentence = "no feature is known to matter" if coefficients else "the policy is what was found"
        return Headline("scores", findings.phrase(f"{sentence}."), "not known")
    features = ", ".join(f"{shorten(name)} ({value:+z.3g})" for name, value in ranked[:_MAX_LISTED_NAMES])
    omitted = f" and {len(ranked) - _MAX_LISTED_NAMES} more" if len(ranked) > _MAX_LISTED_NAMES else ""
    score = findings.phrase(f"give each person the option with the highest score, which adds up {features}{omitted}.")
    if gain is None or gain.value is None:
        return Headline("scores", f"{score} What that gains is not measured.", "not known")
    is_known = gain.low is not None and gain.low > 0
    caveat = "" if is_known else ", which is not known to be above 0"
    difference = format_difference(gain.value, gain.low, gain.high)
    comparison = f"Against {shorten(gain.arm)} for everybody it gains {difference}{caveat}."
    figures = None, gain.arm, gain.value, gain.low, gain.high
    return Headline("scores", f"{score} {comparison}", "decided" if is_known else "not known", *figures)
