"""What all partition learners have in common, and their answers."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.answer.parts import BinMeans, DriftTest, HalfLives
from privateer_core.privacy.trust import Crowd
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.rounds.schedule import Schedule
from tests.support.people import rounds
from tests.support.specs import make_spec

SPECS = PartitionSpec.instances()


@pytest.mark.parametrize("name", SPECS)
def test_the_first_policy_has_equal_arm_shares(name):
    policy: Any = Schedule(SPECS[name]).open(9).policy
    shares = policy.layout.shares
    # Where the arm is in the key there are parts of the only bin.
    assert shares == pytest.approx(np.full(shares.shape, 1 / SPECS[name].arm_count), abs=1e-4)


@pytest.mark.parametrize("name", SPECS)
def test_people_of_decided_bins_still_report(name):
    """A device in decided bins still sends uninformative reports, which the learner counts."""
    spec = SPECS[name]
    schedule = Schedule(spec)
    *_, last = (result for result in rounds(spec) if len(result.policy.bins) > 1)
    only = np.zeros_like(last.step.state.active)
    only[:, 0] = True
    changed = {field.name: getattr(last.step.state, field.name) for field in fields(last.step.state)}
    state = type(last.step.state)(**changed | {"active": only})
    policy: Any = schedule.learner.open_next_round(state, 2, 5).policy
    contexts, coins = np.random.default_rng(0).random((50, spec.dimension)), np.arange(50, dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    assert (decisions.arms == 0).all()
    mechanism = policy.mechanism
    reports = policy.contribute(contexts, coins, decisions, np.ones(50))
    total = mechanism.add(mechanism.empty(), mechanism.parse(mechanism.randomize(reports, SeededNoise(1)).tobytes()))
    after = schedule.learner.learn(state, policy, mechanism.release(total, SeededNoise(2)))
    assert (after.active == only).all()
    assert after.reported == state.reported + 50


@pytest.mark.parametrize("name", SPECS)
def test_rounds_leave_out_fewer_participants_than_a_minimum_batch(name):
    spec = SPECS[name]
    n_left = spec.experiment.horizon + sum(source.participants for source in spec.sources)
    n_left -= sum(result.step.batch_size for result in rounds(spec))
    assert 0 <= n_left < (spec.privacy.min_batch if spec.privacy.trust.crowd is Crowd.BATCH else 1) * len(spec.cohorts)


QUICK = {"privacy.epsilon": 8.0, "experiment.round_size": 500, "experiment.horizon": 4000}


def find_part(answer, kind):
    return next((candidate for candidate in answer.parts if isinstance(candidate, kind)), None)


@pytest.mark.parametrize("name", [name for name in SPECS if "memory" not in name])
def test_an_answer_has_an_interval_for_every_arm_that_is_known(name):
    spec = SPECS[name]
    learner = learner_for(spec)
    first = learner.answer(learner.start(0))
    assert (first.stage, first.people, find_part(first, BinMeans)) == ("learning", 0, None)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    means = find_part(answer, BinMeans)
    assert (answer.stage, answer.stop_reason) == ("ended", "its horizon")
    assert (answer.people, answer.rounds) == (last.state.seen, last.state.rounds)
    assert len(means.bins) == learner.figures(last.state)["bins"]
    for row in means.bins:
        assert {estimate.name for estimate in row.means} <= set(spec.experiment.arms)
        assert all(0 <= estimate.low <= estimate.value <= estimate.high <= 1 for estimate in row.means)


def test_means_are_in_the_unit_of_rewards_with_intervals_of_their_own_errors():
    spec = make_spec({**QUICK, "reward": {"low": -10.0, "high": 30.0}})
    learner = learner_for(spec)
    *_, last = rounds(spec, lambda contexts: np.tile([0.5, 0.45, 0.4], (len(contexts), 1)))
    posterior, bins = last.state.posterior, find_part(learner.answer(last.state), BinMeans).bins
    for row, bin_means in enumerate(bins):
        for estimate in bin_means.means:
            arm = spec.experiment.arms.index(estimate.name)
            assert estimate.value == pytest.approx(10 + 20 * posterior.mean[row, arm], abs=1e-3)
            radius = 1.96 * 20 * np.sqrt(posterior.variance[row, arm])
            assert estimate.high == pytest.approx(min(30.0, estimate.value + radius), rel=1e-3)


def test_an_answer_has_the_drift_and_the_half_life():
    spec = make_spec({**QUICK, "algorithm.half_life": "auto"})
    learner: Any = learner_for(spec)
    *_, last = rounds(spec)
    answer = learner.answer(last.state)
    assert find_part(answer, DriftTest) == learner.detect_change(last.state)
    lives = find_part(answer, HalfLives)
    assert lives.candidates == (None, 30_000, 10_000, 3_000)
    assert sum(lives.probabilities) == pytest.approx(1, abs=1e-3)
    assert find_part(learner_for(make_spec(QUICK)).answer(learner_for(make_spec(QUICK)).start(0)), HalfLives) is None
