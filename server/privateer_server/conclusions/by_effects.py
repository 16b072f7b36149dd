"""The headline of a test: what an option changes against the control, and whether that is decided."""

from statistics import NormalDist

from privateer_core.answer.conclusion import Headline, Rules, Sureness
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rule_words import short
from privateer_server.conclusions.wording import LearnedAnswer, people, plain, signed

_POWER = 0.8
_MORE_MAX = 100
_NAMED = 3
"""Effects of which it is said what would make them surer."""


def baseline_of(spec: Spec, rate: MeasuredRate | None) -> Estimate | None:
    """Return the control's mean reward in its unit, if it is told."""
    if rate is None:
        return None
    reward = spec.reward
    value, low, high = (reward.low + reward.span * one for one in (rate.value, rate.low, rate.high))
    return Estimate(spec.options[0], value, low, high)


def effects_headline(findings: LearnedAnswer, rules: Rules | None, baseline: Estimate | None) -> Headline:
    """Say which option is better than the control on average, or for whom; and what is not decided, with the reason."""
    control, gain = findings.spec.options[0], findings.answer.gain
    if rules and len(rules.rules) > 1 and gain and gain.value is not None and gain.low is not None and gain.low > 0:
        found = signed(gain.value, gain.low, gain.high)
        said = f"choose by segment. The rules below gain {found} over {short(gain.option)} for everybody."
        return Headline("rules", findings.said(said), "decided", None, gain.option, gain.value, gain.low, gain.high)
    one = _leading(findings)
    if one is None or one.value is None:
        why = f": {one.reason}" if one else ""
        return Headline(
            "one option", findings.said(f"nothing is known of any effect{why}."), "not known", None, control
        )
    name, change = short(one.option), _change(one, control, baseline)
    parts = one.option, control, one.value, one.low, one.high
    sureness: Sureness = "decided" if one.is_decided else "not known"
    if one.is_decided and one.value > 0:
        said = f"give everybody {name}: {change}. That is decided."
    elif one.is_decided:
        said = f"keep {short(control)}: nothing is better, and {name} changes rewards by {change}. That is decided."
    else:
        said = f"it is not decided whether {name} is better than {short(control)}: {change}; {one.reason}."
    return Headline("one option", findings.said(said) + _differs(findings), sureness, *parts)


def _leading(findings: LearnedAnswer) -> Effect | None:
    """Return the largest effect among everybody that is decided better; else the largest that is known."""
    everybody = [one for one in findings.answer.effects if one.group is None]
    known = [one for one in everybody if one.value is not None]
    better = [one for one in known if one.is_decided and one.value is not None and one.value > 0]
    ranked = sorted(better or known, key=lambda one: -(one.value or 0.0))
    return next(iter([*ranked, *everybody]), None)


def _change(one: Effect, control: str, baseline: Estimate | None) -> str:
    """Say what an option changes, against which mean."""
    assert one.value is not None
    said = signed(one.value, one.low, one.high)
    if baseline is None:
        return f"{said} against {short(control)}"
    radius = (baseline.high - baseline.low) / 2
    mean = f"{said} against {short(control)}'s mean of {plain(baseline.value, radius)}"
    return f"{mean}, which is {one.value / baseline.value:+.0%}" if baseline.low > 0 else mean


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
    """Say of effects among everybody that are not decided, the largest first, how many people would decide them.

    An interval is narrower by the root of the people; with probability .8 an estimate is not nearer to 0 than its own
    size less .84 deviations.
    """
    asked, answer = findings.answer.people, findings.answer
    open_ = [one for one in answer.effects if one.group is None and not one.is_decided and one.value]
    if not asked or answer.confidence is None:
        return ()
    reach = NormalDist().inv_cdf((1 + answer.confidence) / 2)
    factor = ((reach + NormalDist().inv_cdf(_POWER)) / reach) ** 2
    ranked = sorted(open_, key=lambda one: -abs(one.value or 0.0))[:_NAMED]
    return tuple(_surer(one, asked * factor) for one in ranked if one.low is not None and one.high is not None)


def _surer(one: Effect, asked: float) -> str:
    value, low, high = (float(part or 0.0) for part in (one.value, one.low, one.high))
    more = ((high - low) / 2 / abs(value)) ** 2
    name = short(one.option)
    if more > _MORE_MAX:
        return f"The effect of {name} is so near 0 that even {_MORE_MAX} times as many people would not decide it."
    needed = people(asked * more)
    return (
        f"If the effect of {name} is as large as it looks now, {needed} in all decide it with probability {_POWER:g}."
    )
