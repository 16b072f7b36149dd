"""The conclusion of an experiment, from what its learner found: what faces show, and nothing of it is found there."""

from collections.abc import Iterator, Sequence

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.parts import Contradiction, Gain, GuardrailEffects, Losses
from privateer_core.answer.policy_view import Coefficients, Point, PolicyView
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.by_context import context_findings
from privateer_server.conclusions.by_effects import baseline_of, effects_headline, effects_surer, no_relative
from privateer_server.conclusions.by_estimates import (
    options_headline,
    options_surer,
    point_headline,
    scores_headline,
)
from privateer_server.conclusions.measured_gain import above_chance, beside_chance
from privateer_server.conclusions.rule_words import short
from privateer_server.conclusions.rules import RULE_DIGITS
from privateer_server.conclusions.wording import LearnedAnswer, people, privacy_of, signed, unit_of
from privateer_server.rounds.loop import Schedule, Step


def conclude(schedule: Schedule, step: Step, answer: Answer) -> Conclusion:
    """Return what follows from an answer.

    step: the open round, or the last step: its state is what is known.
    answer: what its learner found, with the reason why nobody is asked any more, if it is over.
    """
    spec = schedule.spec
    bare = Conclusion(
        headline=Headline("nothing yet", _nothing(step, answer), "not known"),
        people=answer.people,
        rounds=answer.rounds,
        reward=unit_of(spec),
        privacy=privacy_of(spec),
        warnings=(*answer.warnings, *_warnings(answer)),
    )
    found = _found(bare, schedule, step, answer)
    surer = *found.surer, *beside_chance(answer)
    found = msgspec.structs.replace(found, over_chance=above_chance(answer), surer=surer)
    if answer.status != "failed":
        return found
    why = "It failed: a round came to no end, so nobody is asked any more."
    known = "" if found.headline.finding == "nothing yet" else f" {found.headline.sentence}"
    return msgspec.structs.replace(found, headline=Headline("failed", why + known, found.headline.sureness))


def _warnings(answer: Answer) -> Iterator[str]:
    """Yield what parts of an answer warn of: guardrails that change, and rewards that move."""
    for part in answer.all_of(GuardrailEffects):
        for one in part.effects:
            if one.is_decided and one.value is not None:
                change = signed(one.value, one.low, one.high)
                yield f"{short(one.option)} changes the guardrail {short(part.name)} by {change}"
    moved = answer.first_of(Contradiction)
    if moved and moved.found and moved.since is not None:
        yield f"rounds after the first {moved.since:,} people contradict those before, so rewards move"


def _nothing(step: Step, answer: Answer) -> str:
    if step.batch and not answer.people:
        return f"Nothing is known yet: the first result comes after {people(step.batch)}."
    if step.batch:
        return f"Nothing is known yet: the next result comes after {people(step.batch)} more."
    return "Nothing is known: it ended before enough people had reported."


def _found(bare: Conclusion, schedule: Schedule, step: Step, answer: Answer) -> Conclusion:
    """Return the conclusion with what was found, by the kind of what there is."""
    spec, learner = schedule.spec, schedule.learner
    findings = LearnedAnswer(spec, answer)
    expected = learner.expected(step.state)
    if expected is not None:
        policy = learner.last(step.state, step.policy.version, 0).policy
        bare = context_findings(bare, findings, expected, policy)
    shown = msgspec.structs.replace(
        bare,
        effects=answer.effects,
        estimates=answer.estimates if findings.rates_options else (),
        confidence=answer.confidence if answer.effects or findings.rates_options else None,
    )
    if answer.effects:
        return _with_effects(shown, findings, schedule, step)
    if findings.rates_options:
        return msgspec.structs.replace(shown, headline=options_headline(findings), surer=options_surer(findings))
    if point := answer.first_of(Point):
        return msgspec.structs.replace(shown, headline=point_headline(findings, point))
    if expected is None and answer.people and answer.says_something:
        return _with_scores(shown, findings, step.policy.view(spec), answer.gain)
    return shown


def _with_effects(shown: Conclusion, findings: LearnedAnswer, schedule: Schedule, step: Step) -> Conclusion:
    spec: Spec = schedule.spec
    baseline: Estimate | None = baseline_of(spec, schedule.learner.measured_rate(step.state))
    headline = effects_headline(findings, shown.rules, baseline)
    return msgspec.structs.replace(
        shown,
        headline=headline,
        rules=_for_everybody(shown.rules, headline, findings.answer.effects, spec.options[0]),
        control=spec.options[0],
        baseline=baseline,
        no_relative=no_relative(findings.answer.effects, baseline),
        gain=findings.answer.gain,
        is_measured=findings.answer.gain is not None,
        losses=next((part.losses for part in findings.answer.all_of(Losses)), ()),
        surer=effects_surer(findings),
    )


def _for_everybody(rules: Rules | None, headline: Headline, effects: Sequence[Effect], control: str) -> Rules | None:
    """Return rules of which a single one says what effects on everybody do, and is decided where the headline is.

    Estimates weigh segments by their people, effects by how much is known of them: near 0 their signs may differ.
    """
    if rules is None or len(rules.rules) != 1:
        return rules
    rule = rules.rules[0]
    means = {control: 0.0} | {one.option: one.value for one in effects if one.group is None and one.value is not None}
    rivals = {option: mean for option, mean in means.items() if option != rule.option}
    if rule.option in means and rivals:
        second = max(rivals, key=lambda option: rivals[option])
        difference = round(means[rule.option] - rivals[second], RULE_DIGITS)
        rule = msgspec.structs.replace(rule, next_best=second, difference=difference)
    if rule.option == headline.option and headline.sureness == "decided":
        rule = msgspec.structs.replace(rule, sureness="decided")
    return msgspec.structs.replace(rules, rules=(rule,))


def _with_scores(shown: Conclusion, findings: LearnedAnswer, policy: PolicyView, gain: Gain | None) -> Conclusion:
    shows = policy.shows
    headline = scores_headline(findings, shows if isinstance(shows, Coefficients) else None)
    means = None if gain is None or not gain.means else (gain.means[0].value, gain.means[-1].value)
    return msgspec.structs.replace(shown, headline=headline, gain=gain, means=means, is_measured=gain is not None)
