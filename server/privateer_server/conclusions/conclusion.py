"""The conclusion of an experiment from its learner's answer, as user interfaces show it without further analysis."""

from collections.abc import Iterator, Sequence

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, PrivacyCost, RewardUnit, Rules
from privateer_core.answer.estimates import Effect
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import DriftTest, Gain, GuardrailEffects, Losses
from privateer_core.answer.policy_view import Coefficients, Point, PolicyView
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.by_context import add_context_findings, find_gain_above_chance, warn_of_chance_level
from privateer_server.conclusions.headlines import (
    effects_headline,
    estimate_baseline,
    explain_no_relative,
    options_headline,
    point_headline,
    scores_headline,
    set_headline,
    suggest_size,
    suggest_sizes,
)
from privateer_server.conclusions.rules import RULE_DIGITS
from privateer_server.conclusions.texts import AnswerFacts, format_count, format_difference, format_number, shorten
from privateer_server.rounds.schedule import Schedule, Step


def conclude(schedule: Schedule, step: Step, answer: Answer) -> Conclusion:
    """Return the conclusion from a learner's answer, at the step of the open or last round."""
    spec = schedule.spec
    base_conclusion = Conclusion(
        headline=Headline("nothing yet", _describe_missing_result(step, answer), "not known"),
        people=answer.people,
        rounds=answer.rounds,
        reward=describe_reward_unit(spec),
        privacy=describe_privacy_cost(spec),
        warnings=(*answer.warnings, *_list_warnings(answer)),
    )
    conclusion = _add_findings(base_conclusion, schedule, step, answer)
    next_steps = *conclusion.next_steps, *warn_of_chance_level(answer)
    conclusion = msgspec.structs.replace(conclusion, over_chance=find_gain_above_chance(answer), next_steps=next_steps)
    if answer.stage != "failed":
        return conclusion
    reason = "It failed: a round came to no end, so nobody is asked any more."
    text = "" if conclusion.headline.finding == "nothing yet" else f" {conclusion.headline.sentence}"
    return msgspec.structs.replace(
        conclusion, headline=Headline("failed", reason + text, conclusion.headline.confidence_label)
    )


def describe_reward_unit(spec: Spec) -> RewardUnit:
    """Describe the unit of rewards; in every spec higher rewards are better."""
    low, high = (format_number(end) for end in (spec.reward.low, spec.reward.high))
    sentence = f"Rewards are from {low} to {high}, and more counts as better; effects are differences of means."
    return RewardUnit(spec.reward.low, spec.reward.high, sentence)


def describe_privacy_cost(spec: Spec) -> PrivacyCost:
    """Describe the privacy guarantee of the experiment's own participants."""
    privacy = spec.privacy
    if not privacy.trust.promises or privacy.epsilon is None:
        sentence = f"Nothing was promised to people: the server sees {privacy.trust.sees}."
        return PrivacyCost(privacy.model, None, 0.0, sentence)
    delta = f" and delta {privacy.delta:g}" if privacy.delta else ""
    tiers = "".join(f", or {tier.epsilon:g} if they chose '{tier.name}'," for tier in privacy.tiers)
    cost = f"It cost each person epsilon {privacy.epsilon:g}{delta}{tiers} against {privacy.trust.reader}"
    sentence = f"{cost}, for all that they report: the server sees {privacy.trust.sees}."
    epsilons = {tier.name: tier.epsilon for tier in privacy.tiers}
    return PrivacyCost(privacy.model, privacy.epsilon, privacy.delta, sentence, epsilons)


def _list_warnings(answer: Answer) -> Iterator[str]:
    for part in answer.all_of(GuardrailEffects):
        for effect in part.effects:
            if effect.is_decided and effect.value is not None:
                change = format_difference(effect.value, effect.low, effect.high)
                yield f"{shorten(effect.arm)} changes the guardrail {shorten(part.name)} by {change}"
    drift = answer.first_of(DriftTest)
    if drift and drift.detected and drift.since is not None:
        yield f"rounds after the first {drift.since:,} people contradict those before, so rewards move"


def _describe_missing_result(step: Step, answer: Answer) -> str:
    """Describe after how many participants the first or next result comes, or that none comes."""
    if step.batch_size and not answer.people:
        return f"Nothing is known yet: the first result comes after {format_count(step.batch_size)}."
    if step.batch_size:
        return f"Nothing is known yet: the next result comes after {format_count(step.batch_size)} more."
    return "Nothing is known: it ended before enough people had reported."


def _add_findings(conclusion: Conclusion, schedule: Schedule, step: Step, answer: Answer) -> Conclusion:
    """Add effects, estimates, a point or scores to a conclusion, whichever the answer has."""
    spec, learner = schedule.spec, schedule.learner
    findings = AnswerFacts(spec, answer)
    expected = learner.build_expected_rewards(step.state)
    if expected is not None:
        policy = learner.open_idle_round(step.state, step.policy.version, 0).policy
        conclusion = add_context_findings(conclusion, findings, expected, policy)
    extended = msgspec.structs.replace(
        conclusion,
        effects=answer.effects,
        estimates=answer.estimates if findings.has_option_estimates else (),
        confidence=answer.confidence if answer.effects or findings.has_option_estimates else None,
    )
    if answer.effects:
        return _add_effects(extended, findings, schedule, step)
    if findings.has_option_estimates:
        finds_set = getattr(spec.algorithm, "objective", "") == "best-arms"
        if finds_set and (best_set := answer.first_of(Table)):
            return msgspec.structs.replace(extended, headline=set_headline(findings, best_set))
        return msgspec.structs.replace(extended, headline=options_headline(findings), next_steps=suggest_size(findings))
    if point := answer.first_of(Point):
        return msgspec.structs.replace(extended, headline=point_headline(findings, point))
    if expected is None and answer.people and answer.says_something:
        return _add_scores_headline(extended, findings, step.policy.view(spec), answer.gain)
    return extended


def _add_effects(conclusion: Conclusion, findings: AnswerFacts, schedule: Schedule, step: Step) -> Conclusion:
    """Add the effects of a test to a conclusion, with headline, baseline, losses and suggested sizes."""
    spec = schedule.spec
    baseline = estimate_baseline(spec, schedule.learner.measured_rate(step.state))
    headline = effects_headline(findings, conclusion.rules, baseline)
    return msgspec.structs.replace(
        conclusion,
        headline=headline,
        rules=_align_rule(conclusion.rules, headline, findings.answer.effects, spec.options[0]),
        control=spec.options[0],
        baseline=baseline,
        no_relative=explain_no_relative(findings.answer.effects, baseline),
        gain=findings.answer.gain,
        is_measured=findings.answer.gain is not None,
        expected_losses=next((part.expected_losses for part in findings.answer.all_of(Losses)), ()),
        next_steps=suggest_sizes(findings),
    )


def _align_rule(rules: Rules | None, headline: Headline, effects: Sequence[Effect], control: str) -> Rules | None:
    """Align a single rule with the overall effects and with the headline; other rules are unchanged.

    Estimates weigh segments by participants, effects by precision: near 0 their signs may differ.
    """
    if rules is None or len(rules.rules) != 1:
        return rules
    rule = rules.rules[0]
    overall_effects = (effect for effect in effects if effect.group is None)
    means = {control: 0.0} | {effect.arm: effect.value for effect in overall_effects if effect.value is not None}
    rivals = {option: mean for option, mean in means.items() if option != rule.arm}
    if rule.arm in means and rivals:
        second = max(rivals, key=rivals.__getitem__)
        difference = round(means[rule.arm] - rivals[second], RULE_DIGITS)
        rule = msgspec.structs.replace(rule, next_best=second, difference=difference)
    if rule.arm == headline.arm and headline.confidence_label == "decided":
        rule = msgspec.structs.replace(rule, confidence_label="decided")
    return msgspec.structs.replace(rules, rules=(rule,))


def _add_scores_headline(
    conclusion: Conclusion, findings: AnswerFacts, policy: PolicyView, gain: Gain | None
) -> Conclusion:
    policy_content = policy.shows
    headline = scores_headline(findings, policy_content if isinstance(policy_content, Coefficients) else None)
    means = None if gain is None or not gain.means else (gain.means[0].value, gain.means[-1].value)
    return msgspec.structs.replace(conclusion, headline=headline, gain=gain, means=means, is_measured=gain is not None)
