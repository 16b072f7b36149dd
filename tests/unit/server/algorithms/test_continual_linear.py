"""Linear rounds of equal sizes under continual release: all rounds since the last restart are one observation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.primitives.bounded_vectors import RunningSums
from privateer_core.spec.sections import parse_section
from privateer_server.algorithms.linear import learner
from privateer_server.algorithms.linear.learner import ContinualLearner, ResidualLearner
from privateer_server.algorithms.linear.posterior import BaseStatistics, ResidualSums
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec


def spec_of(model="central", **table):
    data = linear_spec(model).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"min_round_fraction": 0.0, "round_size": 2000, **table}
    return parse_section(type(linear_spec()), data)


def test_rounds_of_equal_size_under_central_privacy_are_released_as_running_sums():
    assert (spec_of().steps, type(learner(spec_of()))) == (10, ContinualLearner)
    mechanism = Schedule(spec_of()).open(1).policy.terms.mechanism
    assert isinstance(mechanism, RunningVectors)
    assert (mechanism.kind, mechanism.steps) == ("root", 10)
    for other in (spec_of(min_round_fraction=0.3), spec_of("none"), spec_of("local"), spec_of(round_size=20_000)):
        assert (other.steps, type(learner(other))) == (0, ResidualLearner)
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
    information, scores = running.evidence(7.0)
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
        values = policy.mechanism.ball.clip(policy.contribute(contexts, coins, decided, rewards).values)
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
