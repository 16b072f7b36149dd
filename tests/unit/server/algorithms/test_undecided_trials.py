"""The last policy of a trial: the decided arm, or the control; the answer says the same."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.share_source import ShareSource
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule, Step

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
        step = schedule.close(step, release, 5)
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
    assert answer.gain is not None
    assert answer.gain.low is not None
    assert answer.gain.low < answer.gain.value < answer.gain.high
    assert (answer.headline.finding, answer.headline.arm) == ("rules", None)
    assert answer.gain.low < 0.125 < answer.gain.high


@pytest.mark.parametrize("promise", [{}, {"model": "central", "epsilon": 2.0}])
def test_rule_shares_are_counted_and_empty_segments_are_left_out(promise: Mapping[str, Any]) -> None:
    trial = make_trial_spec("central" if promise else "none", {"proportions": "equal"})
    answer, step = run(trial, (-0.2, 0.3, 0.3, 0.0), SKEWED)
    assert answer.rules is not None
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


def test_shares_of_the_spec_are_called_declared() -> None:
    declared, _ = run(make_trial_spec("local-one-bit", min_allocation=None), WORSE)
    assert declared.rules is not None
    assert declared.rules.source is ShareSource.DECLARED
    assert declared.rules.people == ShareSource.DECLARED.sentence
    reported, _ = run(make_trial_spec("local-asked", {"cuts": {"x1": [0.25, 0.5, 0.75]}}, min_allocation=None), WORSE)
    assert reported.rules is not None
    assert reported.rules.source is ShareSource.ASKED
