"""What a trial answers has types: it says what its evidence says, and nothing before the first look."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import EffectsOverTime, Figures, GuardrailEffects, Intervals, Recommendations
from privateer_core.answer.stored import decode_answer, encode_answer
from privateer_server.algorithms.trial.decisions import TrialFindings
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import TrialState

GUARDED: Mapping[str, Any] = {"guardrails": ["refund"]}


def trial(instance: str, section: Mapping[str, Any], **tables: Any) -> TrialSpec:
    told = TrialSpec.instances()[instance].model_dump(exclude_none=True) | tables
    told["algorithm"] |= section
    return TrialSpec.model_validate(told)


SPECS = {
    "plain": trial("none", {}),
    "guarded": trial("central", GUARDED),
    "asked": trial("local-asked", GUARDED),
    "strict": trial("local-asked", {"intervals": "strict", "allocation": "fixed", "floor": None}),
    "one effect": trial(
        "none",
        {"stop": ["decided"]},
        segments={},
        experiment={"name": "test", "arms": ["a", "b"], "horizon": 20_000},
    ),
}


@cache
def learned(name: str) -> tuple[TrialLearner, TrialState]:
    """A trial at its end, of which b is better by .3 than the others."""
    learner, rng = TrialLearner(SPECS[name]), np.random.default_rng(6)
    state, version = learner.start(5), 1
    while batch := (step := learner.next(state, version, 5)).batch:
        contexts, coins = rng.random((batch, 2)), rng.integers(0, 2**32, batch, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        rewards = (rng.random(batch) < 0.3 + 0.3 * (decided.arms == 1)).astype(float)
        if SPECS[name].algorithm.guardrails:
            rewards = np.column_stack([rewards, rng.random(batch) < 0.4]).astype(float)
        fresh = rng.integers(0, 2**32, batch, dtype=np.uint32) if step.policy.fresh_coins else coins
        release = step.policy.mechanism.simulate(step.policy.contribute(contexts, fresh, decided, rewards), rng)
        state, version = learner.learn(state, step.policy, release), version + 1
    return learner, state


@pytest.mark.parametrize("name", SPECS)
def test_it_travels_and_says_nothing_before_the_first_look(name: str) -> None:
    learner, state = learned(name)
    found = learner.answer(state)
    assert decode_answer(encode_answer(found)) == found
    assert learner.answer(learner.start(5)) == Answer("learning", 0, 0, 0.95)
    assert found.people == state.reported
    assert found.rounds == len(state.path)
    assert (found.status, found.ended) == ("ended", "its rule" if name == "one effect" else "its horizon")


@pytest.mark.parametrize("name", SPECS)
def test_effects_paths_and_rules_are_about_the_same(name: str) -> None:
    """An effect in a segment has a path, which ends in its interval if the last look had one; a segment has a rule."""
    learner, state = learned(name)
    spec, found = learner.spec, learner.answer(state)
    paths, rules = found.first_of(EffectsOverTime), found.first_of(Recommendations)
    assert paths is not None
    assert rules is not None
    about = [(one.option, one.group) for one in found.effects][: len(paths.effects)]
    assert [(one.option, one.group) for one in paths.effects] == about
    for path, effect in zip(paths.effects, found.effects, strict=False):
        if path.values[-1] is not None and effect.value is not None:
            assert (path.values[-1], path.lows[-1], path.highs[-1]) == (effect.value, effect.low, effect.high)
    assert len(paths.effects) == len([*spec.effects()])
    assert len(found.effects) == len([*spec.effects(), *spec.average_effects()])
    assert tuple(one.group for one in rules.rules) == spec.segment_names
    assert found.recommended == "b"


def test_figures_of_an_effect_are_those_of_its_test() -> None:
    learner, state = learned("plain")
    effects, tested = learner.answer(state).effects, TrialFindings.of(state, learner.spec).effects
    for one, (k, a, _) in zip(effects, learner.spec.effects(), strict=False):
        assert one.detectable == pytest.approx(tested.detectable[k, a - 1], abs=1e-6)
        assert one.p_value == pytest.approx(tested.p_value[k, a - 1], abs=1e-6)
        assert one.p_value > 0
    adding = [one.contribution for one in effects if one.group and one.option == "b"]
    average = next(one for one in effects if not one.group and one.option == "b")
    assert sum(adding) == pytest.approx(average.value, abs=1e-5)
    assert average.contribution is None


def test_guardrails_questions_and_shares_have_their_parts() -> None:
    learner, state = learned("asked")
    found = learner.answer(state)
    guardrail, shares = found.first_of(GuardrailEffects), found.first_of(Intervals)
    assert guardrail is not None
    assert guardrail.name == "refund"
    assert len(guardrail.effects) == len(found.effects)
    assert shares is not None
    assert (shares.of, len(shares.estimates)) == ("share", learner.spec.segment_count)
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in shares.estimates)
    asked = found.first_of(Table)
    assert asked is not None
    assert sum(row[2] for row in asked.rows) == pytest.approx(1)


def test_a_policy_of_one_option_gains_nothing_over_it() -> None:
    """Everybody gets b: a gain of 0 (0 to 0) would be printed as measured."""
    learner, state = learned("plain")
    assert state.held is not None
    assert set(learner.last(state, 9, 0).policy.arm_shares.argmax(axis=1).tolist()) == {1}
    assert learner.answer(state).gain is None


def test_the_one_effect_that_ended_a_trial_is_told_without_the_bias_of_stopping() -> None:
    learner, state = learned("one effect")
    found = learner.answer(state)
    stop = found.first_of(Intervals)
    assert state.stopped == "decided"
    assert stop is not None
    assert (stop.of, stop.estimates[0].name, found.effects[0].group) == ("difference", "b", None)
    assert stop.estimates[0].low < 0.3 < stop.estimates[0].high


def test_lost_reports_are_a_warning() -> None:
    learner, state = learned("guarded")
    assert learner.answer(state).warnings == ()
    lost = replace(state.ratio, scores=state.ratio.scores + 9)
    warned = learner.answer(replace(state, ratio=lost))
    assert warned.warnings == ("sample ratio: arms are not heard from as often as they are given",)
    facts = {fact.name: fact.value for part in warned.all_of(Figures) for fact in part.facts}
    assert facts["sample ratio"] == warned.warnings[0].removeprefix("sample ratio: ")
