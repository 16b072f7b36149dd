"""Rounds of linear learners that are read again, and running sums of all rounds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import RunningSums, VectorSums
from privateer_core.spec.sections import parse_section
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.linear import learner
from privateer_server.algorithms.linear.learner import ContinualLearner, ResidualLearner
from privateer_server.algorithms.linear.posterior import BaseStatistics, ResidualSums
from privateer_server.rounds.schedule import Schedule
from tests.support.row_vectors import vectors_of
from tests.support.specs import linear_spec

TRUTH = np.array([0.5, 0.8, 0.0, 0.0, 0.0])
NOISE = 2e4
"""Variance that hides what 2,000 people tell, and not what 100,000 do."""


def simulate_release(policy, people, rng):
    """Release contributions with features spread a quarter as far as assumed, and nothing on the second arm."""
    contexts = 0.5 + 0.05 * rng.normal(size=(people, 4))
    rewards = (rng.random(people) < policy.design.rows(contexts) @ TRUTH).astype(float)
    reports = policy.contribute(contexts, np.zeros(people, np.uint32), Arms(np.zeros(people, np.int64)), rewards)
    sums = np.tile(vectors_of(policy, reports).sum(axis=0), policy.classes)
    return VectorSums(people, sums + np.sqrt(NOISE) * rng.normal(size=sums.shape), NOISE)


def rounds(model, counts):
    """Schedule, steps and the state after rounds of so many people."""
    schedule, rng = Schedule(linear_spec(model)), np.random.default_rng(8)
    state = schedule.learner.start(0)
    for version, people in enumerate(counts, 1):
        policy = schedule.learner.policy(state, NewRound(version, 3, people))
        state = schedule.learner.learn(state, policy, simulate_release(policy, people, rng))
    return schedule.learner, state


def test_a_first_round_is_reinterpreted_with_later_moments():
    """Its information on the slopes falls to what features tell that spread a quarter as far."""
    learner, first = rounds("shuffle", [2000])
    later = rounds("shuffle", [2000, 100_000])[1]
    past_round = first.recent.rounds[0]
    old, new = (learner.fit_statistics(first, past_round, 1 << 13), learner.fit_statistics(later, past_round, 1 << 13))
    assert np.allclose(old[0], first.information, rtol=0.2, atol=0.05 * np.abs(old[0]).max())
    slopes = [np.trace(statistics[0].sum(axis=0)[1:, 1:]) for statistics in (old, new)]
    assert slopes[1] < 0.3 * slopes[0]


def test_recent_and_settled_evidence_add_up():
    learner, state = rounds("shuffle", [1000] * 12)
    assert len(state.recent.rounds) == 10
    last = state.recent.rounds[-1]
    statistics = [learner.fit_statistics(state, past_round, 1 << 13) for past_round in state.recent.rounds[:-1]]
    statistics.append(learner.fit_statistics(state, last, 1 << 15))
    assert np.allclose(state.information, state.recent.information + sum(information for information, _ in statistics))
    assert np.allclose(state.scores, state.recent.scores + sum(scores for _, scores in statistics))
    assert state.recent.information.any()


def test_rounds_without_moments_or_with_late_reports_are_settled_at_once():
    assert rounds("local", [1000, 1000])[1].recent.rounds == ()
    learner, state = rounds("shuffle", [1000])
    earlier = state.recent.rounds[0].policy
    policy = learner.policy(state, NewRound(2, 3, 1000))
    followed = policy.with_decision_policies([(earlier, 0.5), (policy, 0.5)])
    after = learner.learn(state, followed, simulate_release(policy, 1000, np.random.default_rng(9)))
    assert len(after.recent.rounds) == 1
    assert not np.array_equal(after.recent.information, state.recent.information)


def test_added_arms_and_warm_starts_settle_recent_rounds():
    learner, state = rounds("shuffle", [1000])
    spec = learner.spec
    larger = spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"arms": ("a", "b", "c")})})
    wider = Schedule(larger).learner.apply_spec_change(state, spec)
    assert wider.recent is None
    assert np.array_equal(wider.information[:2], state.information)
    assert learner.start_from_state(state, learner.spec) == replace(state, reported=0, recent=None)


def spec_of(model="central", **table):
    data = linear_spec(model).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"min_round_fraction": 0.0, "round_size": 2000, **table}
    return parse_section(type(linear_spec()), data)


def test_rounds_of_equal_size_under_central_privacy_are_released_as_running_sums():
    assert (spec_of().n_releases, type(learner(spec_of()))) == (10, ContinualLearner)
    mechanism = Schedule(spec_of()).open(1).policy.terms.mechanism
    assert isinstance(mechanism, RunningVectors)
    assert (mechanism.kind, mechanism.steps) == ("root", 10)
    for other in (spec_of(min_round_fraction=0.3), spec_of("none"), spec_of("local"), spec_of(round_size=20_000)):
        assert (other.n_releases, type(learner(other))) == (0, ResidualLearner)
        assert not isinstance(Schedule(other).open(1).policy.terms.mechanism, RunningVectors)


def test_the_sum_of_rounds_is_regressed_on_the_sum_of_slopes():
    """Against least squares by hand; what was known before noise began anew stays."""
    rng = np.random.default_rng(5)
    state = learner(spec_of()).start(0)
    before = BaseStatistics(state.information + np.eye(5), state.scores + 2.0, state.moments, state.precision)
    running = replace(
        ResidualSums.start(before),
        matrices=rng.normal(size=(2, 5, 5)),
        observed=rng.normal(size=(2, 5)),
        spread=np.array([3.0, 5.0]),
        doubt=np.array([1.0, 2.0]),
    )
    information, scores = running.information_and_scores(7.0)
    for arm, variance in enumerate((11.0, 16.0)):
        matrix = running.matrices[arm]
        assert information[arm] == pytest.approx(np.eye(5) + matrix.T @ matrix / variance)
        assert scores[arm] == pytest.approx(2.0 + matrix.T @ running.observed[arm] / variance)


def test_estimates_do_not_drift_and_a_restart_keeps_the_earlier_evidence():
    """Without noise rounds lead to the truth, and what was known before a new beginning counts as it was."""
    truth = np.array([0.5, 0.1, -0.1, 0.05, 0.0])
    linear_learner: Any = learner(spec_of())
    rng, step = np.random.default_rng(6), Schedule(spec_of()).open(2)
    state, errors = step.state, []
    for number in range(1, 6):
        policy: Any = linear_learner.open_next_round(state, number, 7).policy
        contexts = rng.random((2000, 4))
        coins = rng.integers(0, 2**32, 2000, dtype=np.uint32)
        decided = policy.decide(contexts, coins)
        rewards = policy.design.rows(contexts) @ truth
        values = vectors_of(policy, policy.contribute(contexts, coins, decided, rewards))
        begins = number in (1, 4)
        release = RunningSums(2000, values.sum(axis=0), 1e-9, 1 if begins else number)
        before, state = state, linear_learner.learn(state, policy, release)
        assert state.running.people == 2000 * (number if number < 4 else number - 3)
        assert not begins or (state.running.before.information == before.information).all()
        means, covariances = linear_learner.estimate_parameters(state)
        errors.append(float(np.abs(means - truth).max()))
        assert np.linalg.eigvalsh(covariances).min() > 0
    assert state.reported == 10_000
    assert max(errors[1:]) < 0.1
    assert errors[-1] < 0.05
