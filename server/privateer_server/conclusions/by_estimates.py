"""Headlines of algorithms that rate options one by one, score them by their features, or find a point of a set."""

from collections.abc import Sequence

from privateer_core.answer.conclusion import Headline
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.policy_view import Coefficients, Point
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.rule_words import number, short
from privateer_server.conclusions.wording import LearnedAnswer, people, plain, signed

_SHOWN = 6
"""Coordinates or features that a sentence names."""
_MORE_MAX = 50


def _leaders(findings: LearnedAnswer) -> tuple[Estimate, Estimate | None]:
    """Return the option that is recommended, or else the one with the highest estimate; and the best of the others."""
    ranked = sorted(findings.answer.estimates, key=lambda one: -one.value)
    ranked = [one for one in ranked if one.name not in findings.spec.retired] or ranked
    named = next((one for one in ranked if one.name == findings.answer.recommended), ranked[0])
    others = [one for one in ranked if one is not named]
    return named, others[0] if others else None


def options_headline(findings: LearnedAnswer) -> Headline:
    """Say which option is the best, against the next one, and whether that is decided; intervals hold together."""
    best, second = _leaders(findings)
    name, radius = _called(findings, best.name), (best.high - best.low) / 2
    mean = f"a mean reward of {plain(best.value, radius)} ({plain(best.low, radius)} to {plain(best.high, radius)})"
    if second is None:
        return Headline("one option", findings.said(f"only {name} is left, with {mean}."), "decided", best.name)
    rivals = [one for one in findings.answer.estimates if one is not best and one.high >= best.low]
    other, value = _called(findings, second.name), best.value - second.value
    if _is_decided(findings, rivals):
        # Tests of one against another are sharper than two intervals that hold beside all others.
        against = f"{signed(value, None, None)} against {other}, the next best"
        sentence = findings.said(f"give everybody {name}. It has {mean}, {against}, and is decided to be the best.")
        return Headline("one option", sentence, "decided", best.name, second.name, value)
    low, high = best.low - second.high, best.high - second.low
    may = f"{other} or {len(rivals) - 1:,} more" if len(rivals) > 1 else other
    sentence = f"ahead is {name} with {mean}, but it is not known to be better than {may}"
    said = findings.said(f"{sentence}: {signed(value, low, high)} against {other}.")
    return Headline("one option", said, "not known", best.name, second.name, value, low, high)


def _is_decided(findings: LearnedAnswer, rivals: Sequence[Estimate]) -> bool:
    return findings.answer.ground == "decided against all other options" or not rivals


def _called(findings: LearnedAnswer, name: str) -> str:
    """Return what an option is called: actions, which affect everybody, have numbers."""
    return short(name) if isinstance(findings.spec, ArmsSpec) else f"action {name}"


def options_surer(findings: LearnedAnswer) -> tuple[str, ...]:
    """Say how many people would tell the best option from the next one, if they differ as much as they seem to."""
    best, second = _leaders(findings)
    asked = findings.answer.people
    if second is None or not asked or best.value <= second.value:
        return ()
    if _is_decided(findings, [one for one in findings.answer.estimates if one is not best and one.high >= best.low]):
        return ()
    more = ((best.value - best.low + second.high - second.value) / (best.value - second.value)) ** 2
    if more > _MORE_MAX:
        return ("The best options are so close that even 50 times as many people would not tell which is better.",)
    return (f"If they differ as much as they seem to, {people(asked * more)} in all would tell which is better.",)


def point_headline(findings: LearnedAnswer, point: Point) -> Headline:
    """Say at which point everybody is, and how much that may lose."""
    shown = [f"{short(name)} = {number(value)}" for name, value in list(point.centre.items())[:_SHOWN]]
    if len(point.centre) > _SHOWN:
        shown.append(f"and {len(point.centre) - _SHOWN} more coordinates")
    lost = next(iter(findings.answer.estimates), None)
    sentence = findings.said(f"use the point {', '.join(shown)}.")
    if lost is None:
        return Headline("point", sentence, "not known")
    if lost.high >= findings.spec.reward.span:
        return Headline("point", f"{sentence} How much it may lose is not known yet.", "not known")
    bound = f"The average point so far loses at most {number(lost.high)} of mean reward against the best one."
    return Headline("point", f"{sentence} {bound}", "not known", control="the best point", low=-lost.high)


def scores_headline(findings: LearnedAnswer, shown: Coefficients | None) -> Headline:
    """Say by which features options are scored, and what that gains."""
    gain = findings.answer.gain
    ranked = sorted(shown.shared.items(), key=lambda one: -abs(one[1])) if shown else []
    if not ranked:
        said = "no feature is known to matter" if shown else "the policy is what was found"
        return Headline("scores", findings.said(f"{said}."), "not known")
    named = ", ".join(f"{short(name)} ({value:+z.3g})" for name, value in ranked[:_SHOWN])
    more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
    score = findings.said(f"give each person the option with the highest score, which adds up {named}{more}.")
    if gain is None or gain.value is None:
        return Headline("scores", f"{score} What that gains is not measured.", "not known")
    is_known = gain.low is not None and gain.low > 0
    known = "" if is_known else ", which is not known to be above 0"
    against = f"Against {short(gain.option)} for everybody it gains {signed(gain.value, gain.low, gain.high)}{known}."
    parts = None, gain.option, gain.value, gain.low, gain.high
    return Headline("scores", f"{score} {against}", "decided" if is_known else "not known", *parts)
