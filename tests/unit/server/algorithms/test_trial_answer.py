"""The answer of a trial: typed parts that agree with the evidence, and no effects before the first look."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import decode_answer, encode_answer
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import EffectsOverTime, Figures, GuardrailEffects, Intervals, Recommendations
from privateer_server.algorithms.trial.decisions import TrialFindings
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import TrialState

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
        fresh = rng.integers(0, 2**32, batch, dtype=np.uint32) if policy.fresh_coins else coins
        release = policy.mechanism.simulate(policy.contribute(contexts, fresh, decided, rewards), rng)
        state, version = learner.learn(state, step.policy, release), version + 1
    return learner, state


@pytest.mark.parametrize("name", SPECS)
def test_a_decoded_answer_is_equal_and_has_no_effects_before_the_first_look(name: str) -> None:
    learner, state = simulate_trial(name)
    last = learner.answer(state)
    assert decode_answer(encode_answer(last)) == last
    assert learner.answer(learner.start(5)) == Answer("learning", 0, 0, 0.95)
    assert last.people == state.reported
    assert last.rounds == len(state.path)
    assert (last.stage, last.stop_reason) == ("ended", "its rule" if name == "one effect" else "its horizon")


@pytest.mark.parametrize("name", SPECS)
def test_effects_paths_and_rules_have_the_same_arms_and_segments(name: str) -> None:
    """An effect in a segment has a path, which ends in its interval if the last look had one; a segment has a rule."""
    learner, state = simulate_trial(name)
    spec, result = learner.spec, learner.answer(state)
    paths, rules = result.first_of(EffectsOverTime), result.first_of(Recommendations)
    assert paths is not None
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
    assert guardrail is not None
    assert guardrail.name == "refund"
    assert len(guardrail.effects) == len(answer.effects)
    assert shares is not None
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
    assert stop is not None
    assert (stop.of, stop.estimates[0].name, answer.effects[0].group) == ("difference", "b", None)
    assert stop.estimates[0].low < 0.3 < stop.estimates[0].high


def test_a_sample_ratio_mismatch_is_a_warning() -> None:
    learner, state = simulate_trial("guarded")
    assert learner.answer(state).warnings == ()
    skewed = replace(state.ratio, scores=state.ratio.scores + 9)
    warned = learner.answer(replace(state, ratio=skewed))
    assert warned.warnings == ("sample ratio: arms are not heard from as often as they are given",)
    facts = {fact.name: fact.value for part in warned.all_of(Figures) for fact in part.facts}
    assert facts["sample ratio"] == warned.warnings[0].removeprefix("sample ratio: ")
