"""What all learners of the partition bandit have in common, under every trust model and confidence."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.rounds.loop import Schedule
from tests.support.people import rounds

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
    assert 0 <= n_left < (spec.privacy.min_batch if spec.privacy.trust.batched else 1) * len(spec.cohorts)
