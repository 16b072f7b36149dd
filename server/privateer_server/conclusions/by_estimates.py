"""Headlines of algorithms that estimate options' means, score options by features, or optimize over a convex set."""

from collections.abc import Sequence

import msgspec

from privateer_core.answer.conclusion import Headline
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Table
from privateer_core.answer.policy_view import Coefficients, Point
from privateer_core.spec.arms import ArmsSpec
from privateer_server.conclusions.texts import (
    AnswerFacts,
    format_count,
    format_difference,
    format_mean,
    format_number,
    shorten,
)

_MAX_LISTED = 6  # the number of coordinates or features that a sentence names
_MAX_FACTOR = 50


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
    if factor > _MAX_FACTOR:
        return ("The best options are so close that even 50 times as many people would not tell which is better.",)
    return (f"If they differ as much as they seem to, {format_count(n * factor)} in all would tell which is better.",)


def point_headline(findings: AnswerFacts, point: Point) -> Headline:
    """Return the headline of the recommended point, and its maximum loss."""
    centre = list(point.centre.items())
    coordinates = [f"{shorten(name)} = {format_number(value)}" for name, value in centre[:_MAX_LISTED]]
    if len(centre) > _MAX_LISTED:
        coordinates.append(f"and {len(centre) - _MAX_LISTED} more coordinates")
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
    features = ", ".join(f"{shorten(name)} ({value:+z.3g})" for name, value in ranked[:_MAX_LISTED])
    omitted = f" and {len(ranked) - _MAX_LISTED} more" if len(ranked) > _MAX_LISTED else ""
    score = findings.phrase(f"give each person the option with the highest score, which adds up {features}{omitted}.")
    if gain is None or gain.value is None:
        return Headline("scores", f"{score} What that gains is not measured.", "not known")
    is_known = gain.low is not None and gain.low > 0
    caveat = "" if is_known else ", which is not known to be above 0"
    difference = format_difference(gain.value, gain.low, gain.high)
    comparison = f"Against {shorten(gain.arm)} for everybody it gains {difference}{caveat}."
    figures = None, gain.arm, gain.value, gain.low, gain.high
    return Headline("scores", f"{score} {comparison}", "decided" if is_known else "not known", *figures)
