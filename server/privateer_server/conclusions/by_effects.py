"""The headline of a test: what an option changes against the control, and whether that is decided."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from privateer_core.answer.conclusion import Headline, NoRelative, Rule, Rules, Sureness
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.answer.parts import Recommendations
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rule_words import REST, short
from privateer_server.conclusions.wording import LearnedAnswer, people, plain, signed

_DECIDED: Final[Sureness] = "decided"
_AGAINST_CONTROL: Final[Sureness] = "decided against the control"
_NOT_KNOWN: Final[Sureness] = "not known"
_SURE: Final[dict[Sureness, str]] = {
    _DECIDED: "decided",
    _AGAINST_CONTROL: "decided to be better than the control",
    "decided on average": "decided on average over all people",
}
_POWER = 0.8
_MORE_MAX = 100
_SMALL = 0.02
"""Shares of a mean below this have a decimal."""
_TWO = 2
_NAMED = 3
"""Effects of which it is said what would make them surer."""


def baseline_of(spec: Spec, rate: MeasuredRate | None) -> Estimate | None:
    """Return the control's mean reward in its unit, if it is told."""
    if rate is None:
        return None
    reward = spec.reward
    value, low, high = (reward.low + reward.span * one for one in (rate.value, rate.low, rate.high))
    return Estimate(spec.options[0], value, low, high)


def no_relative(effects: Sequence[Effect], baseline: Estimate | None) -> NoRelative | None:
    """Return why effects are not told as shares of the control's mean."""
    if baseline is None:
        return "no relative effects: the control's mean has no interval"
    if baseline.low <= 0:
        return "no relative effects: the control's mean may be 0 or less"
    if any(one.group is not None for one in effects):
        return "no relative effects of segments: the control's mean in each is not estimated"
    return None


def effects_headline(findings: LearnedAnswer, rules: Rules | None, baseline: Estimate | None) -> Headline:
    """Say which option everybody gets, or who gets which; and what is not decided, with the reason."""
    control = findings.spec.options[0]
    if rules and len({rule.option for rule in rules.rules}) > 1:
        return _by_segment(findings, rules, baseline)
    everybody = [effect for effect in findings.answer.effects if effect.group is None]
    leading = _leading(everybody)
    option = _given(findings, rules) or (leading.option if leading and _is_better(leading) else control)
    if option != control:
        effect = next(effect for effect in everybody if effect.option == option)
        return _new_option(findings, effect, baseline)
    if leading is None or leading.value is None:
        why = f": {leading.reason}" if leading else ""
        sentence = f"no effect has an interval{why}. Keep {short(control)}, as nothing is decided."
        return Headline("one option", findings.said(sentence), "not known", control, control)
    return _control(findings, everybody, leading, baseline)


def _given(findings: LearnedAnswer, rules: Rules | None) -> str | None:
    """Return the option that everybody gets; None where the answer does not say."""
    if rules:
        return rules.rules[0].option
    recommended = findings.answer.first_of(Recommendations)
    return recommended.rules[0].option if recommended else None


def _is_better(effect: Effect) -> bool:
    return effect.is_decided and (effect.value or 0.0) > 0


def _new_option(findings: LearnedAnswer, effect: Effect, baseline: Estimate | None) -> Headline:
    """Say that everybody gets another option than the control, and whether that is decided."""
    control = findings.spec.options[0]
    name, change = short(effect.option), _change(effect, control, baseline)
    if _is_better(effect):
        sentence, sureness = f"give everybody {name}: {change}. {_decided(findings, name)}", _DECIDED
    else:
        unknown = f"it is not decided whether it is better than {short(control)}: {change}; {effect.reason}"
        sentence, sureness = f"everybody gets {name}, which is ahead, and {unknown}.", _NOT_KNOWN
    return _headline(findings, sentence, sureness, effect.option, effect)


def _decided(findings: LearnedAnswer, name: str) -> str:
    """Say against which others an option is decided to be better."""
    recommended = findings.answer.first_of(Recommendations)
    if len(findings.spec.options) == _TWO or recommended is None or recommended.rules[0].is_decided:
        return "That is decided."
    rest = "the other option" if len(findings.spec.options) == _TWO + 1 else "all other options"
    control = short(findings.spec.options[0])
    return f"That it is better than {control} is decided, and that {name} is better than {rest} is not."


def _control(
    findings: LearnedAnswer, everybody: Sequence[Effect], rival: Effect, baseline: Estimate | None
) -> Headline:
    """Say that everybody keeps the control, and what is known of its strongest rival."""
    control = findings.spec.options[0]
    name, change = short(rival.option), _change(rival, control, baseline)
    if rival.is_decided:
        is_all = all(effect.is_decided for effect in everybody)
        better = "no other option is better" if is_all else "no other option is decided to be better"
        sentence = f"keep {short(control)}: {better}, and {name} changes rewards by {change}. That is decided."
        return _headline(findings, sentence, _DECIDED if is_all else _NOT_KNOWN, control, rival)
    unknown = f"it is not decided whether {name} is better than {short(control)}: {change}; {rival.reason}"
    return _headline(findings, f"{unknown}. Keep {short(control)}.", _NOT_KNOWN, control, rival)


def _headline(findings: LearnedAnswer, sentence: str, sureness: Sureness, option: str, effect: Effect) -> Headline:
    control, figures = findings.spec.options[0], (effect.value, effect.low, effect.high)
    said = findings.said(sentence) + _differs(findings)
    return Headline("one option", said, sureness, option, control, *figures, compared=effect.option)


def _by_segment(findings: LearnedAnswer, rules: Rules, baseline: Estimate | None) -> Headline:
    """Say who gets which option, how far that is decided, and what is known of everybody together."""
    control, gain = findings.spec.options[0], findings.answer.gain
    others = [rule.sureness for rule in rules.rules if rule.option != control]
    sureness = _NOT_KNOWN if _NOT_KNOWN in others else _AGAINST_CONTROL
    if all(rule.sureness == _DECIDED for rule in rules.rules):
        sureness = _DECIDED
    if gain and gain.value is not None and gain.low is not None and gain.low > 0:
        found = signed(gain.value, gain.low, gain.high)
        said = f"choose by segment. The rules below gain {found} over {short(gain.option)} for everybody."
        figures = gain.value, gain.low, gain.high
        return Headline("rules", findings.said(said), _DECIDED, None, gain.option, *figures)
    parts = [_part(rule, rules, control) for rule in rules.rules[:_NAMED]]
    more = len(rules.rules) - len(parts)
    named = "; ".join([*parts, *([f"and {more} more rules below"] if more else [])])
    leading = _leading([effect for effect in findings.answer.effects if effect.group is None])
    together = ""
    if leading and leading.value is not None:
        change = _change(leading, control, baseline)
        together = f" Given to everybody, {short(leading.option)} changes rewards by {change}: {leading.reason}."
    return Headline("rules", findings.said(f"choose by segment: {named}.") + together, sureness, None, control)


def _part(rule: Rule, rules: Rules, control: str) -> str:
    """Say who gets an option, what share of people they are and by which source, and how far that is decided."""
    who = f"to {rule.people}" if rule.people == REST else f"where {rule.people}"
    sure = _SURE.get(
        rule.sureness, "kept, as nothing is decided to be better there" if rule.option == control else "not decided"
    )
    return f"{short(rule.option)} {who} ({rule.share:.0%} of people, {rules.source}): {sure}"


def _leading(everybody: Sequence[Effect]) -> Effect | None:
    """Return the largest effect among everybody that is decided better; else the largest that is known."""
    known = [effect for effect in everybody if effect.value is not None]
    better = [effect for effect in known if _is_better(effect)]
    ranked = sorted(better or known, key=lambda effect: -(effect.value or 0.0))
    return next(iter([*ranked, *everybody]), None)


def _change(one: Effect, control: str, baseline: Estimate | None) -> str:
    """Say what an option changes, against which mean."""
    assert one.value is not None
    said = f"{one.value:+z.3g}" if one.low is None else signed(one.value, one.low, one.high)
    if baseline is None:
        return f"{said} against {short(control)}"
    radius = (baseline.high - baseline.low) / 2
    mean = f"{said} against {short(control)}'s mean of {plain(baseline.value, radius)}"
    if baseline.low <= 0:
        return mean
    share = one.value / baseline.value
    return f"{mean}, which is {share:+.{int(abs(share) < _SMALL)}%}"


def _differs(findings: LearnedAnswer) -> str:
    """Say how many effects in groups are decided, and of which sign."""
    groups = [one for one in findings.answer.effects if one.group is not None]
    if not groups:
        return ""
    decided = [one for one in groups if one.is_decided and one.value is not None]
    worse = sum((one.value or 0.0) < 0 for one in decided)
    if not decided:
        return " In no segment is an effect decided."
    better = len(decided) - worse
    said = f"{better:,} {'is' if better == 1 else 'are'} decided better, {worse:,} worse"
    return f" Of {len(groups):,} effects in segments {said}."


def effects_surer(findings: LearnedAnswer) -> tuple[str, ...]:
    """Say of effects among everybody that are not decided, the largest first, what would decide them.

    An interval is narrower by the root of the people; with probability .8 an estimate is not nearer to 0 than its own
    size less .84 deviations. Where there is no interval the remark says why.
    """
    asked, answer = findings.answer.people, findings.answer
    open_ = [one for one in answer.effects if one.group is None and not one.is_decided]
    if not asked or answer.confidence is None:
        return ()
    reach = NormalDist().inv_cdf((1 + answer.confidence) / 2)
    factor = ((reach + NormalDist().inv_cdf(_POWER)) / reach) ** 2
    ranked = sorted(open_, key=lambda one: -abs(one.value or 0.0))[:_NAMED]
    return tuple(said for one in ranked if (said := _surer(one, asked * factor)))


def _surer(one: Effect, asked: float) -> str:
    name = short(one.option)
    if one.low is None or one.high is None or not one.value:
        return f"{name} has no interval, since {one.reason}: {one.remark}." if one.remark else ""
    more = ((one.high - one.low) / 2 / abs(one.value)) ** 2
    if more > _MORE_MAX:
        found = signed(one.value, one.low, one.high)
        return f"The estimate of {name}, {found}, is so near 0 that it does not tell how many people would decide it."
    needed = people(asked * more)
    side = "better" if one.value > 0 else "worse"
    return f"If {name} is as much {side} as it looks now, {needed} in all decide it with probability {_POWER:g}."
