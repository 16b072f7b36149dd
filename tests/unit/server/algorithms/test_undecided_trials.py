"""What people get when a trial ends: what is decided, and the control where nothing is; the answer says the same."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.shares import ShareSource
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule, Step

NONE, WORSE = (0.0, 0.0, 0.0, 0.0), (-0.2, -0.2, -0.2, -0.2)
MIXED = (-0.25, -0.25, 0.25, 0.25)
SKEWED = (0.9, 0.05, 0.05, 0.0)


def spec(instance: str = "none", segments: Mapping[str, Any] | None = None, **section: Any) -> TrialSpec:
    told = TrialSpec.instances()[instance].model_dump(exclude_none=True)
    told["experiment"] = {"name": "test", "arms": ["a", "b"], "horizon": 8_000, "round_size": 2_000}
    told["algorithm"] |= section
    told["segments"] |= segments or {}
    return TrialSpec.model_validate(told)


def run(
    trial: TrialSpec, effects: tuple[float, ...], shares: tuple[float, ...] = (0.25,) * 4
) -> tuple[Conclusion, Step]:
    """A trial of four segments to its end, with an effect of b in each, and people in these shares."""
    schedule, rng = Schedule(trial), np.random.default_rng(4)
    step = schedule.open(5)
    while step.batch:
        groups = rng.choice(4, step.batch, p=shares)
        contexts = np.stack([(groups + rng.random(step.batch)) / 4, rng.random(step.batch)], axis=1)
        coins = rng.integers(0, 2**32, step.batch, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        rewards = (rng.random(step.batch) < 0.4 + np.array(effects)[groups] * (decided.arms == 1)).astype(float)
        mechanism: Any = step.policy.terms.mechanism
        release = mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
        step = schedule.close(step, release, 5)
    return conclude(schedule, step, schedule.answer(step)), step


@cache
def finished(
    effects: tuple[float, ...], shares: tuple[float, ...], undecided: str = "control"
) -> tuple[Conclusion, Step]:
    return run(spec(undecided=undecided), effects, shares)


def given(step: Step) -> list[int]:
    return step.policy.arm_shares.argmax(axis=1).tolist()


def test_an_undecided_trial_publishes_the_control() -> None:
    found, step = finished(NONE, (0.25,) * 4)
    assert not any(one.is_decided for one in found.effects)
    assert given(step) == [0, 0, 0, 0]
    assert step.policy.arm_shares.max(axis=1).tolist() == [1, 1, 1, 1]
    assert (found.headline.option, found.headline.compared, found.headline.sureness) == ("a", "b", "not known")
    assert "Keep a." in found.headline.sentence
    assert found.gain is None
    assert len(found.losses) == 4


def test_the_spec_may_publish_what_is_leading() -> None:
    found, step = finished(NONE, (0.25,) * 4, "leading")
    ahead = {one.group: (one.value or 0.0) > 0 for one in found.effects if one.group}
    assert given(step) == [int(one) for one in ahead.values()]
    assert 1 in given(step)
    assert found.headline.sureness == "not known"


def test_a_harm_keeps_the_control_and_says_so() -> None:
    found, step = finished(WORSE, (0.25,) * 4)
    assert given(step) == [0, 0, 0, 0]
    assert (found.headline.option, found.headline.compared, found.headline.sureness) == ("a", "b", "decided")
    assert found.headline.sentence.startswith("Keep a: no other option is better")
    assert found.rules is not None
    assert [(one.option, one.sureness) for one in found.rules.rules] == [("a", "decided")]


def test_a_gain_is_told_of_a_policy_of_several_arms_alone() -> None:
    found, step = finished(MIXED, (0.25,) * 4)
    assert given(step) == [0, 0, 1, 1]
    assert found.gain is not None
    assert found.gain.low is not None
    assert found.gain.low < found.gain.value < found.gain.high
    assert (found.headline.finding, found.headline.option) == ("rules", None)
    assert found.gain.low < 0.125 < found.gain.high


@pytest.mark.parametrize("promise", [{}, {"model": "central", "epsilon": 2.0}])
def test_shares_are_those_that_were_counted_and_nobody_is_in_no_rule(promise: Mapping[str, Any]) -> None:
    trial = spec("central" if promise else "none", {"shares": "equal"})
    found, step = run(trial, (-0.2, 0.3, 0.3, 0.0), SKEWED)
    assert found.rules is not None
    assert found.rules.source is ShareSource.COUNTED
    assert "1 segment is left out" in found.rules.people
    shares = {one.option: one.share for one in found.rules.rules}
    assert shares["b"] == pytest.approx(0.1, abs=0.02)
    assert sum(one.share for one in found.rules.rules) == pytest.approx(1, abs=1e-3)
    assert all(one.sureness == "decided" for one in found.rules.rules), "nobody's segment blurs nothing"
    assert given(step) == [0, 1, 1, 0]
    [warning] = [one for one in found.warnings if one.startswith("segments.shares")]
    assert "declares 25.0%" in warning
    assert warning.split("reports count ")[1].startswith(("89", "90"))


def test_shares_that_only_the_spec_knows_are_called_declared() -> None:
    found, _ = run(spec("local-one-bit", floor=None), WORSE)
    assert found.rules is not None
    assert found.rules.source is ShareSource.DECLARED
    assert found.rules.people == ShareSource.DECLARED.sentence
    asked, _ = run(spec("local-asked", {"cuts": {"x1": [0.25, 0.5, 0.75]}}, floor=None), WORSE)
    assert asked.rules is not None
    assert asked.rules.source is ShareSource.ASKED
