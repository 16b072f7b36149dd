"""Learners after a change: evidence stays, retired arms have no share, and added arms are unknown."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.errors import SpecError
from privateer_server.algorithms import learner_for
from privateer_server.experiments.spec_changes import add_arm, extend_horizon, retire_arm, with_name
from privateer_server.rounds.schedule import Schedule
from tests.support.phased import phased_spec
from tests.support.servers import PHASED
from tests.support.specs import make_spec

MODELS = [{}, {"privacy.model": "shuffle", "privacy.delta": 1e-6}]
SOURCES = [
    {"name": "past", "participants": 2000, "epsilon": 1.0, "shares": [0.5, 0.3, 0.2]},
    {"name": "older", "participants": 2000, "epsilon": 1.0, "shares": [0.2, 0.3, 0.5]},
]


def play_rounds(spec: Any, rounds: int, rewards: Any, seed: int = 0) -> Any:
    """Return the step after a number of rounds with the reward probability ``rewards(contexts, arm)``."""
    schedule, rng = Schedule(spec), np.random.default_rng(seed)
    step = schedule.open(seed)
    for _ in range(rounds):
        step = schedule.advance(step, released(step.policy, step.batch_size, rewards, rng), int(rng.integers(2**62)))
    return step


def released(policy: Any, people: int, rewards: Any, rng: np.random.Generator) -> Any:
    """A round's release, drawn from its exact law."""
    contexts = rng.random((people, policy.dimension))
    coins = rng.integers(0, 2**32, people, dtype=np.uint32)
    decided = policy.decide(contexts, coins)
    chances = rewards(contexts, decided.arms)
    values = (rng.random(people) < chances).astype(np.float64)
    report_coins = rng.integers(0, 2**32, people, dtype=np.uint32) if policy.has_fresh_coins else coins
    return policy.mechanism.simulate(policy.contribute(contexts, report_coins, decided, values), rng)


def by_half(contexts: Any, arms: Any) -> Any:
    """Arm 0 is best on the left, arm 1 on the right, and the others are poor."""
    is_left = contexts[:, 0] < 0.5
    return np.where(arms == 0, np.where(is_left, 0.9, 0.2), np.where(arms == 1, np.where(is_left, 0.2, 0.9), 0.4))


@pytest.mark.parametrize("model", MODELS)
def test_a_longer_horizon_keeps_the_state(model: Any) -> None:
    before = make_spec({"privacy.epsilon": 4.0, **model})
    step = play_rounds(before, 8, by_half)
    after = Schedule(extend_horizon(before, 40_000))
    assert after.learner.apply_spec_change(step.state, before) is step.state
    assert after.open_next_step(step.state, 9, 1).batch_size == 1000


@pytest.mark.parametrize("model", MODELS)
def test_a_retired_arm_keeps_its_evidence_without_a_share(model: Any) -> None:
    before = make_spec({"privacy.epsilon": 4.0, **model})
    step = play_rounds(before, 8, by_half)
    after = retire_arm(before, "arm-0")
    schedule = Schedule(after)
    state = schedule.learner.apply_spec_change(step.state, before)
    assert np.array_equal(state.evidence.precision, step.state.evidence.precision)
    assert not state.active[:, 0].any()
    assert state.active.any(axis=1).all()
    policy: Any = schedule.open_next_step(state, 9, 1).policy
    policy.check(after)
    assert not policy.shares[:, 0].any()
    final: Any = schedule.open_next_step(state, 9, 1, is_inviting=False).policy
    assert set(final.active.argmax(axis=1)) <= {1, 2}


@pytest.mark.parametrize("model", MODELS)
def test_an_added_arm_that_is_best_is_found(model: Any) -> None:
    def with_better(contexts: Any, arms: Any) -> Any:
        return np.where(arms == 3, 0.9, 0.6 * by_half(contexts, arms))

    before = make_spec({"privacy.epsilon": 4.0, **model})
    step: Any = play_rounds(before, 6, with_better)
    schedule, rng = Schedule(add_arm(before, "new")), np.random.default_rng(3)
    state: Any = schedule.learner.apply_spec_change(step.state, before)
    assert not state.evidence.precision[:, 3].any()
    assert np.array_equal(state.evidence.precision[:, :3], step.state.evidence.precision)
    final: Any = schedule.open_next_step(state, 7, 1, is_inviting=False).policy
    assert not final.active[:, 3].any()
    step = schedule.open_next_step(state, 7, 1)
    assert step.policy.shares[:, 3].max() > 0.05
    for _ in range(12):
        step = schedule.advance(
            step, released(step.policy, step.batch_size, with_better, rng), int(rng.integers(2**62))
        )
    policy: Any = schedule.open_next_step(step.state, 30, 1, is_inviting=False).policy
    arms = policy.decide(rng.random((1000, 2)), rng.integers(0, 2**32, 1000, dtype=np.uint32)).arms
    assert (arms == 3).mean() > 0.9


def test_sources_say_nothing_about_an_added_arm() -> None:
    before = make_spec({"sources": SOURCES})
    after = add_arm(before, "new")
    assert [source.shares[-1] for source in after.sources] == [0.0, 0.0]
    schedule = Schedule(after)
    state = schedule.learner.apply_spec_change(Schedule(before).open(0).state, before)
    step = schedule.open_next_step(state, 2, 1)
    assert step.policy.cohort == "past"
    step.policy.check(after)
    closed = schedule.advance(step, released_past(step.policy, 1000), 1).state
    assert not closed.evidence.precision[:, 3].any()


def test_nobody_had_an_added_arm_under_a_policy_that_looked_at_the_context() -> None:
    looking = {name: value for name, value in SOURCES[0].items() if name != "shares"} | {"min_propensities": [0.1] * 3}
    after = add_arm(make_spec({"sources": [looking]}), "new")
    assert after.sources[0].min_propensities == (0.1, 0.1, 0.1, 0.0)


def released_past(policy: Any, people: int) -> Any:
    rng = np.random.default_rng(0)
    contexts, coins = rng.random((people, 2)), rng.integers(0, 2**32, people, dtype=np.uint32)
    reports = policy.contribute_past_arms(contexts, coins, rng.integers(0, 3, people), rng.random(people))
    return policy.mechanism.simulate(reports, rng)


def test_a_new_experiment_begins_with_the_evidence_and_counts_people_anew() -> None:
    before = make_spec({"sources": SOURCES[:1], "privacy.epsilon": 4.0})
    step = played_past_sources(before)
    after = make_spec({"experiment.name": "next", "privacy.epsilon": 2.0, "experiment.horizon": 3000})
    schedule = Schedule(after)
    state = schedule.learner.start_from_state(step.state, before)
    assert (state.rounds, state.seen, state.n_own_reports, state.reported, state.cohort) == (0, 0, 0, 0, "")
    assert np.array_equal(state.evidence.precision, step.state.evidence.precision)
    assert len(state.population.shares) == 1
    assert schedule.open_next_step(state, 1, 1).batch_size == 1000
    with pytest.raises(SpecError, match="no such source"):
        Schedule(make_spec({"sources": SOURCES})).learner.start_from_state(step.state, before)


def played_past_sources(spec: PartitionSpec) -> Any:
    schedule, rng = Schedule(spec), np.random.default_rng(0)
    step = schedule.open(0)
    while step.policy.cohort:
        step = schedule.advance(step, released_past(step.policy, step.batch_size), 1)
    return schedule.advance(step, released(step.policy, step.batch_size, by_half, rng), 1)


def test_elimination_by_test_allows_retiring_but_not_adding_arms() -> None:
    before = make_spec({"algorithm.name": "paper-1-proved", "privacy.epsilon": 8.0})
    step = play_rounds(before, 10, by_half)
    with pytest.raises(SpecError, match="shared out"):
        Schedule(add_arm(before, "new")).learner.apply_spec_change(step.state, before)
    after = retire_arm(before, "arm-1")
    state = Schedule(after).learner.apply_spec_change(step.state, before)
    assert not state.active[:, 1].any()
    assert state.active[:, [0, 2]].any(axis=1).all()
    Schedule(after).open_next_step(state, 11, 1).policy.check(after)
    changed = Schedule(extend_horizon(before, 10**6)).learner.apply_spec_change(step.state, before)
    assert changed.expected == step.state.expected


def test_an_arm_eliminated_by_a_retired_arm_is_tried_again() -> None:
    before = make_spec({"algorithm.name": "paper-1-proved"})
    learner: Any = learner_for(before)
    state = replace(learner.start(0), active=np.array([[True, False, False]]))
    after: Any = learner_for(retire_arm(before, "arm-0"))
    assert after.apply_spec_change(state, before).active.tolist() == [[False, True, True]]


def test_phased_learners_refuse_another_spec_but_a_clone_continues() -> None:
    spec = phased_spec(PHASED, "local")
    state = Schedule(spec).open(5).state
    longer = spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": 6000})})
    learner = learner_for(longer)
    with pytest.raises(SpecError, match="create another experiment"):
        learner.apply_spec_change(state, spec)
    with pytest.raises(SpecError):
        learner.start_from_state(state, spec)
    clone = with_name(spec, "other")
    assert learner_for(clone).start_from_state(state, spec) is state


@pytest.mark.parametrize(
    "changes", [{"experiment.retired_arms": ["x"]}, {"experiment.retired_arms": ["arm-0", "arm-1"]}]
)
def test_a_spec_retires_its_own_arms_and_leaves_two(changes: Any) -> None:
    with pytest.raises(SpecError, match="retired"):
        make_spec(changes)
