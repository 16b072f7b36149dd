"""Decisions of trials and their reasons, the last policy, and the answer that says so."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.estimates import Reason
from privateer_core.answer.share_source import ShareSource
from privateer_lab.audit.whole_experiments import make_contributions
from privateer_server.algorithms.trial.decisions import (
    StandingDecisions,
    TrialFindings,
    build_effects,
    choose_overall_basis,
    choose_segment_basis,
)
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.treatment_effects import compute_average_effects, compute_effects
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.schedule import Schedule, Step

NAN = (np.nan, np.nan, np.nan)
ABOVE, BELOW, AROUND = (0.3, 0.1, 0.5), (-0.3, -0.5, -0.1), (0.1, -0.1, 0.3)
CORRECTED: Reason = "its interval excludes 0, but not after the correction for several effects"
AGAIN: Reason = "its test decided at an earlier look, but its interval holds 0 again"
FEW: Reason = Reason.FEW_PEOPLE


def decide_looks(*looks: tuple[float, float, float], tested: bool) -> StandingDecisions:
    """Return the decisions on one effect after looks with these intervals."""
    path, none = np.array(looks).reshape(len(looks), 1, 3), np.full(1, np.nan)
    return StandingDecisions.from_interval_path(
        path, np.arange(1.0, len(looks) + 1) * 1000, np.array([tested]), (none, none)
    )


@pytest.mark.parametrize(
    ("looks", "tested", "decided", "people"),
    [
        ((ABOVE,), True, True, 1000),
        ((ABOVE,), False, False, 1000),
        ((BELOW, NAN, NAN), True, True, 1000),
        ((ABOVE, AROUND), True, False, 2000),
        ((ABOVE, AROUND, NAN), True, False, 2000),
        ((NAN, NAN), True, False, 2000),
    ],
)
def test_a_decision_stays_with_its_last_interval(looks, tested, decided, people):
    standing_decisions = decide_looks(*looks, tested=tested)
    assert (standing_decisions.decided.tolist(), standing_decisions.people.tolist()) == ([decided], [people])


def run_one_look() -> tuple[TrialSpec, TrialState, TrialFindings]:
    """A trial of two segments and two treatments after a round, with known averages."""
    spec = TrialSpec.instances()["none"]
    schedule = Schedule(spec)
    step = schedule.open(7)
    contexts = np.random.default_rng(5).random((step.batch_size, spec.dimension))
    coins = np.random.default_rng(6).integers(0, 2**32, step.batch_size, dtype=np.uint32)
    reports = make_contributions(spec, step.policy, contexts, coins, 0.0)
    release = step.policy.terms.mechanism.simulate(reports, np.random.default_rng(7))
    state = schedule.advance(step, release, 7).state
    return spec, state, TrialFindings.from_state(state, spec)


@pytest.mark.parametrize(
    ("interval", "tested", "reason"),
    [
        (ABOVE, True, "decided better"),
        (BELOW, True, "decided worse"),
        (ABOVE, False, CORRECTED),
        (AROUND, True, AGAIN),
        (AROUND, False, "its interval holds 0"),
        (NAN, False, FEW),
    ],
)
def test_an_average_is_decided_only_where_its_interval_leaves_0_out(interval, tested, reason):
    spec, state, findings = run_one_look()
    treatments = spec.arm_count - 1
    assert findings.average is not None
    path, calls = np.tile(interval, (1, treatments, 1)), np.full(treatments, tested)
    averages = StandingDecisions.from_interval_path(path, np.array([1000.0]), calls, (np.full(treatments, np.nan),) * 2)
    average = replace(findings.average, estimate=path[0, :, 0], low=path[0, :, 1], high=path[0, :, 2])
    effects = build_effects(state, replace(findings, average=average, average_decisions=averages), spec)
    averages_shown = [effect for effect in effects if effect.group is None]
    assert [effect.reason for effect in averages_shown] == [reason] * treatments
    assert all((effect.value is None) == (reason == FEW) for effect in averages_shown)


def test_a_recommendation_has_the_ground_of_its_decisions() -> None:
    _, _, findings = run_one_look()
    assert findings.average_decisions is not None
    segments, treatments = findings.decisions.decided.shape
    none, all_ = np.zeros((segments, treatments), bool), np.ones((segments, treatments), bool)
    worse, better = np.tile(BELOW, (segments, treatments, 1)), np.tile(ABOVE, (segments, treatments, 1))

    def of(best: int, intervals: np.ndarray, decided: np.ndarray) -> str:
        people = np.full(decided.shape, 1000)
        whole = StandingDecisions(intervals, people, decided, decided, decided & (intervals[..., 1] > 0))
        return choose_segment_basis(
            replace(findings, decisions=whole, segment_arms=np.full(segments, best), is_best=np.zeros(segments, bool)),
            0,
        )

    assert of(0, worse, all_) == "decided against all other options"
    assert of(1, better, all_) == "decided against the control alone"
    assert of(1, worse, all_) == "ahead, and not decided"
    assert of(0, worse, none) in ("ahead, and not decided", "too few people to say")
    assert choose_overall_basis(findings) in ("ahead, and not decided", "too few people to say")


NONE, WORSE = (0.0, 0.0, 0.0, 0.0), (-0.2, -0.2, -0.2, -0.2)
MIXED = (-0.25, -0.25, 0.25, 0.25)
SKEWED = (0.9, 0.05, 0.05, 0.0)


def make_trial_spec(instance: str = "none", segments: Mapping[str, Any] | None = None, **section: Any) -> TrialSpec:
    settings = TrialSpec.instances()[instance].model_dump(exclude_none=True)
    settings["experiment"] = {"name": "test", "arms": ["a", "b"], "horizon": 8_000, "round_size": 2_000}
    settings["algorithm"] |= section
    settings["segments"] |= segments or {}
    return TrialSpec.model_validate(settings)


def run(
    trial: TrialSpec, effects: tuple[float, ...], shares: tuple[float, ...] = (0.25,) * 4
) -> tuple[Conclusion, Step]:
    """A trial of four segments to its end, with an effect of b in each, and people in these shares."""
    schedule, rng = Schedule(trial), np.random.default_rng(4)
    step = schedule.open(5)
    while step.batch_size:
        groups = rng.choice(4, step.batch_size, p=shares)
        contexts = np.stack([(groups + rng.random(step.batch_size)) / 4, rng.random(step.batch_size)], axis=1)
        coins = rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        rewards = (rng.random(step.batch_size) < 0.4 + np.array(effects)[groups] * (decided.arms == 1)).astype(float)
        mechanism: Any = step.policy.terms.mechanism
        release = mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
        step = schedule.advance(step, release, 5)
    return conclude(schedule, step, schedule.answer(step)), step


@cache
def run_standard_trial(effects: tuple[float, ...], shares: tuple[float, ...]) -> tuple[Conclusion, Step]:
    return run(make_trial_spec(), effects, shares)


def published_arms(step: Step) -> list[int]:
    policy: Any = step.policy
    assert set(policy.arm_shares.max(axis=1).tolist()) == {1}
    return policy.arm_shares.argmax(axis=1).tolist()


def test_an_undecided_trial_publishes_the_control() -> None:
    answer, step = run_standard_trial(NONE, (0.25,) * 4)
    assert not any(effect.is_decided for effect in answer.effects)
    assert published_arms(step) == [0, 0, 0, 0]
    assert (answer.headline.arm, answer.headline.compared, answer.headline.confidence_label) == ("a", "b", "not known")
    assert "Keep a." in answer.headline.sentence
    assert answer.gain is None
    assert len(answer.expected_losses) == 4


def test_a_harm_keeps_the_control_and_says_so() -> None:
    answer, step = run_standard_trial(WORSE, (0.25,) * 4)
    assert published_arms(step) == [0, 0, 0, 0]
    assert (answer.headline.arm, answer.headline.compared, answer.headline.confidence_label) == ("a", "b", "decided")
    assert answer.headline.sentence.startswith("Keep a: no other option is better")
    assert answer.rules is not None
    assert [(rule.arm, rule.confidence_label) for rule in answer.rules.rules] == [("a", "decided")]


def test_only_a_policy_of_several_arms_has_a_gain() -> None:
    answer, step = run_standard_trial(MIXED, (0.25,) * 4)
    assert published_arms(step) == [0, 0, 1, 1]
    assert answer.gain.low is not None
    assert answer.gain.low < answer.gain.value < answer.gain.high
    assert (answer.headline.finding, answer.headline.arm) == ("rules", None)
    assert answer.gain.low < 0.125 < answer.gain.high


@pytest.mark.parametrize("promise", [{}, {"model": "central", "epsilon": 2.0}])
def test_rule_shares_are_counted_and_empty_segments_are_left_out(promise: Mapping[str, Any]) -> None:
    trial = make_trial_spec("central" if promise else "none", {"proportions": "equal"})
    answer, step = run(trial, (-0.2, 0.3, 0.3, 0.0), SKEWED)
    assert answer.rules.source is ShareSource.COUNTED
    assert "1 segment is left out" in answer.rules.people
    shares = {rule.arm: rule.share for rule in answer.rules.rules}
    assert shares["b"] == pytest.approx(0.1, abs=0.02)
    assert sum(rule.share for rule in answer.rules.rules) == pytest.approx(1, abs=1e-3)
    assert all(rule.confidence_label == "decided" for rule in answer.rules.rules), "nobody's segment blurs nothing"
    assert published_arms(step) == [0, 1, 1, 0]
    [warning] = [text for text in answer.warnings if text.startswith("segments.proportions")]
    assert "declares 25.0%" in warning
    assert warning.split("reports count ")[1].startswith(("89", "90"))


DESIGN = TrialDesign(0.05, 1_000, np.full(2, 0.5), np.full(2, 0.5))


def rows(a: int, b: int, yes_of_a: int, yes_of_b: int) -> dict[str, list[object]]:
    outcomes = [1] * yes_of_a + [0] * (a - yes_of_a) + [1] * yes_of_b + [0] * (b - yes_of_b)
    return {"arm": ["a"] * a + ["b"] * b, "reward": outcomes}


@pytest.mark.parametrize(
    ("table", "reason", "remark"),
    [
        (rows(20, 4, 9, 2), Reason.FEW_PEOPLE, "b counts as 4 people, and an interval needs 5"),
        (rows(100, 300, 2, 1), Reason.RARE, "1 with b and 2 with a; an interval needs 2 in each at the rate of both"),
    ],
)
def test_a_reason_names_the_rule_the_arm_and_its_count(table, reason, remark):
    effect = lab.analyze(table).answer.effects[0]
    assert (effect.reason, effect.remark) == (reason, remark)


def release(noise: float, people: float) -> TrialEvidence:
    """Release half of the participants in each segment and each arm, of whom a third say yes."""
    hits = np.full((2, 2), people / 4)
    return TrialEvidence.begin(DESIGN).add(Epoch(people, hits / 3, hits, 1.0, 0.0, noise, np.full((2, 2), 0.5)))


@pytest.mark.parametrize("people", [8.0, 20.0, 44.0, 400.0])
def test_noise_is_a_reason_only_under_a_noisy_mechanism(people: float) -> None:
    of_noise = (ReasonCode.NOISE, ReasonCode.NOBODY)
    quiet, loud = release(0.0, people), release(1e4, people)
    for reasons in (compute_effects(quiet).reason, compute_average_effects(quiet).reason):
        assert not np.isin(reasons, of_noise).any()
    for reasons in (compute_effects(loud).reason, compute_average_effects(loud).reason):
        assert np.isin(reasons, of_noise).all()


def test_an_arm_without_valid_outcomes_has_its_own_reason() -> None:
    """Planted: outcomes are texts, which count nowhere under a promise, and noise seemed to hide the people."""
    words = {"arm": ["a", "b"] * 1_000, "outcome": ["cured", "ill", "ill", "ill"] * 500}
    shares = {"a": 0.5, "b": 0.5}
    effect = lab.analyze(words, reward="outcome", shares=shares, epsilon=1.0).answer.effects[0]
    assert effect.reason is Reason.NOBODY
    assert lab.analyze(words, reward="outcome", shares=shares, epsilon=1.0, yes="cured").answer.effects[0].is_decided
    # Of 30 people 7 to 8 deviations of their noise remain: few beside it, and not nobody.
    assert (compute_effects(release(1.0, 30.0)).reason == ReasonCode.NOISE).all()
