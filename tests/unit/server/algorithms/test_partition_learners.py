"""What all learners of the partition bandit have in common, under every trust model and confidence."""

from dataclasses import fields

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.rounds.loop import Schedule
from tests.support.people import rounds

SPECS = PartitionSpec.instances()


@pytest.mark.parametrize("name", SPECS)
def test_the_first_policy_treats_arms_alike(name):
    shares = Schedule(SPECS[name]).open(9).policy.layout.shares
    # Where the arm is in the key there are parts of the only bin.
    assert shares == pytest.approx(np.full(shares.shape, 1 / SPECS[name].arm_count), abs=1e-4)


@pytest.mark.parametrize("name", SPECS)
def test_people_of_decided_bins_still_report(name):
    """Once every bin is decided a device still sends reports that say nothing, and the learner still learns them."""
    spec = SPECS[name]
    schedule = Schedule(spec)
    *_, last = (one for one in rounds(spec) if len(one.policy.bins) > 1)
    only = np.zeros_like(last.step.state.active)
    only[:, 0] = True
    changed = {field.name: getattr(last.step.state, field.name) for field in fields(last.step.state)}
    state = type(last.step.state)(**changed | {"active": only})
    policy = schedule.learner.next(state, 2, 5).policy
    contexts, coins = np.random.default_rng(0).random((50, spec.dimension)), np.arange(50, dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    assert (decisions.arms == 0).all()
    mechanism = policy.mechanism
    made = policy.contribute(contexts, coins, decisions, np.ones(50))
    total = mechanism.add(mechanism.empty(), mechanism.parse(mechanism.randomize(made, SeededNoise(1)).tobytes()))
    after = schedule.learner.learn(state, policy, mechanism.release(total, SeededNoise(2)))
    assert (after.active == only).all()
    assert after.reported == state.reported + 50


@pytest.mark.parametrize("name", SPECS)
def test_rounds_leave_out_fewer_people_than_a_round_may_have(name):
    spec = SPECS[name]
    left = spec.experiment.horizon + sum(one.people for one in spec.sources)
    left -= sum(one.step.batch for one in rounds(spec))
    assert 0 <= left < (spec.privacy.min_batch if spec.privacy.trust.batched else 1) * len(spec.cohorts)
