"""The answer of a trial: typed parts that agree with the evidence, and what following its recommendation loses."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import EffectsOverTime, GuardrailEffects, Intervals, Losses, Recommendations
from privateer_server.algorithms.trial.decisions import TrialFindings
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.algorithms.trial.trial_answer import bound_loss

GUARDED: Mapping[str, Any] = {"guardrails": ["refund"]}


def make_trial_spec(instance: str, section: Mapping[str, Any], **tables: Any) -> TrialSpec:
    settings = TrialSpec.instances()[instance].model_dump(exclude_none=True) | tables
    settings["algorithm"] |= section
    return TrialSpec.model_validate(settings)


SPECS = {
    "plain": make_trial_spec("none", {}),
    "guarded": make_trial_spec("central", GUARDED),
    "asked": make_trial_spec("local-asked", GUARDED),
    "one effect": make_trial_spec(
        "none",
        {"stopping_rules": ["decided"]},
        segments={},
        experiment={"name": "test", "arms": ["a", "b"], "horizon": 20_000},
    ),
}


@cache
def simulate_trial(name: str) -> tuple[TrialLearner, TrialState]:
    """A trial at its end, of which b is better by .3 than the others."""
    learner, rng = TrialLearner(SPECS[name]), np.random.default_rng(6)
    state, version = learner.start(5), 1
    while batch := (step := learner.open_next_round(state, version, 5)).batch_size:
        contexts, coins = rng.random((batch, 2)), rng.integers(0, 2**32, batch, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        rewards = (rng.random(batch) < 0.3 + 0.3 * (decided.arms == 1)).astype(float)
        if SPECS[name].algorithm.guardrails:
            rewards = np.column_stack([rewards, rng.random(batch) < 0.4]).astype(float)
        policy: Any = step.policy
        fresh = rng.integers(0, 2**32, batch, dtype=np.uint32) if policy.has_fresh_coins else coins
        release = policy.mechanism.simulate(policy.contribute(contexts, fresh, decided, rewards), rng)
        state, version = learner.learn(state, step.policy, release), version + 1
    return learner, state


@pytest.mark.parametrize("name", SPECS)
def test_effects_paths_and_rules_have_the_same_arms_and_segments(name: str) -> None:
    """An effect in a segment has a path, which ends in its interval if the last look had one; a segment has a rule."""
    learner, state = simulate_trial(name)
    spec, result = learner.spec, learner.answer(state)
    paths, rules = result.first_of(EffectsOverTime), result.first_of(Recommendations)
    assert rules is not None
    effect_names = [(effect.arm, effect.group) for effect in result.effects][: len(paths.effects)]
    assert [(path.arm, path.group) for path in paths.effects] == effect_names
    for path, effect in zip(paths.effects, result.effects, strict=False):
        if path.values[-1] is not None and effect.value is not None:
            assert (path.values[-1], path.lows[-1], path.highs[-1]) == (effect.value, effect.low, effect.high)
    assert len(paths.effects) == len([*spec.effects()])
    assert len(result.effects) == len([*spec.effects(), *spec.average_effects()])
    assert tuple(rule.group for rule in rules.rules) == spec.segment_names
    assert result.recommended == "b"


def test_figures_of_an_effect_are_those_of_its_test() -> None:
    learner, state = simulate_trial("plain")
    effects, tested = learner.answer(state).effects, TrialFindings.from_state(state, learner.spec).effects
    for effect, (k, a, _) in zip(effects, learner.spec.effects(), strict=False):
        assert effect.detectable == pytest.approx(tested.detectable[k, a - 1], abs=1e-6)
        assert effect.p_value == pytest.approx(tested.p_value[k, a - 1], abs=1e-6)
        assert effect.p_value > 0
    adding = [effect.contribution for effect in effects if effect.group and effect.arm == "b"]
    average = next(effect for effect in effects if not effect.group and effect.arm == "b")
    assert sum(adding) == pytest.approx(average.value, abs=1e-5)
    assert average.contribution is None


def test_guardrails_questions_and_shares_have_their_parts() -> None:
    learner, state = simulate_trial("asked")
    answer = learner.answer(state)
    guardrail, shares = answer.first_of(GuardrailEffects), answer.first_of(Intervals)
    assert guardrail.name == "refund"
    assert len(guardrail.effects) == len(answer.effects)
    assert (shares.of, len(shares.estimates)) == ("share", learner.spec.segment_count)
    assert all(0 <= estimate.low <= estimate.value <= estimate.high <= 1 for estimate in shares.estimates)
    first = answer.first_of(Table)
    assert first is not None
    assert sum(row[2] for row in first.rows) == pytest.approx(1)


def test_a_policy_of_one_arm_has_no_gain() -> None:
    """Everybody gets b: a gain of 0 (0 to 0) would be printed as measured."""
    learner, state = simulate_trial("plain")
    assert state.held is not None
    policy: Any = learner.open_idle_round(state, 9, 0).policy
    assert set(policy.arm_shares.argmax(axis=1).tolist()) == {1}
    assert learner.answer(state).gain is None


def test_the_effect_at_stopping_is_corrected_for_bias() -> None:
    learner, state = simulate_trial("one effect")
    answer = learner.answer(state)
    stop = answer.first_of(Intervals)
    assert state.stopped == "decided"
    assert (stop.of, stop.estimates[0].name, answer.effects[0].group) == ("difference", "b", None)
    assert stop.estimates[0].low < 0.3 < stop.estimates[0].high


def test_the_expected_loss_of_one_treatment_is_that_of_the_normal_law() -> None:
    """With a lead of one deviation the expected loss is .0833 deviations, and the interval bounds it."""
    interval = np.array([[0.1, -0.1, 0.3]])
    assert bound_loss(1, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.00833, 0.1), abs=1e-5)
    assert bound_loss(0, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.10833, 0.3), abs=1e-5)
    assert bound_loss(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.1]), None)[1] == 0


def test_the_expected_loss_of_several_arms_bounds_the_simulated_loss() -> None:
    """Against a million draws with a common control, which make effects correlate."""
    rng, deviation = np.random.default_rng(3), 0.1
    estimates = np.array([0.05, 0.12, 0.1])
    intervals = np.stack([estimates, estimates - 0.3, estimates + 0.3], axis=1)
    control, treatments = (rng.normal(0, deviation / 2**0.5, (1_000_000, columns)) for columns in (1, 3))
    effects = np.concatenate([np.zeros((1_000_000, 1)), estimates + treatments - control], axis=1)
    simulated = float((effects.max(axis=1) - effects[:, 2]).mean())
    expected, bound = bound_loss(2, intervals, np.full(3, deviation), np.full(3, 0.5))
    # Sums over arms bound the best of them; the control is one of three others here.
    assert simulated < expected < 1.7 * simulated
    directly = np.quantile(effects[:, 3] - effects[:, 2], 0.9987)
    assert bound == pytest.approx(max(0.3 - 0.12, directly), abs=0.003)
    rare_bound = bound_loss(2, intervals, np.full(3, deviation), np.full(3, 0.5), np.full(3, 1.1))[1]
    assert rare_bound == pytest.approx(max(0.3 - 0.12, 0.02 + 1.1 * (directly - 0.02)), abs=0.003)
    assert bound_loss(2, intervals, np.full(3, deviation), None)[1] == pytest.approx(0.1 + 0.3 - (0.12 - 0.3))


def test_without_noise_the_loss_is_the_observed_difference() -> None:
    assert bound_loss(1, np.array([[0.1, 0.1, 0.1], [0.3, 0.3, 0.3]]), np.zeros(2), np.zeros(2)) == pytest.approx(
        (0.2, 0.2)
    )


def test_the_loss_is_within_the_intervals() -> None:
    """Planted: of +.3 (+.1 to +.5) .004 were expected, so that "at most" was .004 and not 0."""
    assert bound_loss(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.2]), None) == (0.0, 0.0)
    assert bound_loss(0, np.array([[-0.3, -0.5, -0.1]]), np.array([0.2]), None) == (0.0, 0.0)
    rng = np.random.default_rng(5)
    for _ in range(200):
        values, half = rng.normal(0, 0.2, 3), rng.uniform(0, 0.5, 3)
        intervals = np.stack([values, values - half, values + half], axis=1)
        best, shared = int(rng.integers(0, 4)), rng.uniform(0, 1, 3) if rng.random() < 0.8 else None
        expected, bound = bound_loss(best, intervals, half / rng.uniform(0.5, 3), shared)
        assert 0 <= expected <= bound <= 1


@pytest.mark.parametrize("name", SPECS)
def test_an_answer_has_the_expected_loss_of_each_segment(name: str) -> None:
    learner, state = simulate_trial(name)
    spec, answer = learner.spec, learner.answer(state)
    first = answer.first_of(Losses)
    whole = [
        group
        for group in spec.segment_names
        if all(effect.value is not None for effect in answer.effects if effect.group in (group, None))
    ]
    assert len(first.expected_losses) == spec.segment_count, "also those of which nothing is decided"
    estimated = [loss for loss in first.expected_losses if loss.expected is not None]
    assert len(estimated) >= len(whole)
    assert all(0 <= loss.expected <= loss.most for loss in estimated)
    assert all(loss.most == spec.reward.span for loss in first.expected_losses if loss.expected is None)
    assert all(loss.name.split(":")[0] in spec.options for loss in first.expected_losses)
