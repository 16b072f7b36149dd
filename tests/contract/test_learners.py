"""One battery for every learner under every trust model and confidence that it has."""

import json
import math
from copy import deepcopy
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from privateer.algorithms.partition import PartitionPolicy
from privateer.codec import decode, encode
from privateer.verification import Limits, verify
from privateer_server.algorithms import learner_for
from tests.contract import registry, test_phased
from tests.support.partitions import same
from tests.support.people import bumps, rounds

CASES = registry.learner_cases()
WIDE = Limits(epsilon=math.inf, delta=0.1, local_epsilon=16, arms="hidden", curator=True)


@pytest.fixture(params=CASES)
def name(request) -> str:
    return request.param


def release_of(policy, spec, seed=3):
    rng = np.random.default_rng(seed)
    contexts, slots = (
        rng.random((policy.terms.batch, spec.dimension)),
        rng.integers(0, 2**32, policy.terms.batch, dtype=np.uint32),
    )
    told = policy.contribute(contexts, slots, policy.choose(contexts, slots), rng.random(policy.terms.batch))
    return policy.mechanism.simulate(told, rng)


def test_every_learner_is_in_the_battery():
    assert registry.learners() == set(registry.LEARNERS) | set(test_phased.LEARNERS)
    for kind, specs in registry.LEARNERS.items():
        assert specs
        assert all(type(learner_for(spec)) is kind for spec in specs.values())


def test_state_and_policy_round_trip(name):
    state, policy = registry.played(name)
    learner = learner_for(CASES[name])
    assert is_dataclass(state)
    for value, kind in ((state, learner.state_type), (learner.start(), learner.state_type), (policy, PartitionPolicy)):
        assert type(value) is kind
        assert same(decode(encode(value), kind), value)


def test_decoded_values_learn_alike(name):
    state, policy = registry.played(name)
    learner, release = learner_for(CASES[name]), release_of(policy, CASES[name])
    before = deepcopy(state)
    expected = learner.learn(state, policy, release)
    assert same(state, before), "learning changes nothing in place"
    back = learner.learn(decode(encode(state), type(state)), decode(encode(policy), PartitionPolicy), release)
    assert same(back, expected)


def test_policy_is_a_function_of_state_and_seed(name):
    state, _ = registry.played(name)
    learner = learner_for(CASES[name])
    one, again, other = (learner.policy(state, 2, 1000, seed) for seed in (5, 5, 6))
    assert same(one, again)
    assert other.layout.seed != one.layout.seed


def test_every_rounds_policy_checks_and_its_terms_verify(name):
    spec = CASES[name]
    seen = 0
    for played in rounds(spec, bumps(spec.arm_count), seed=2):
        batch = played.policy.terms.batch
        played.policy.check(spec.arm_count)
        verify(played.policy.terms, spec.privacy, batch, WIDE)
        seen += played.release.reports
        assert played.state.seen == seen
    left_out = spec.privacy.min_batch if spec.privacy.model == "shuffle" else 1
    assert spec.experiment.horizon - left_out < seen <= spec.experiment.horizon


def test_the_first_policy_treats_arms_alike(name):
    spec = CASES[name]
    learner = learner_for(spec)
    policy = learner.policy(learner.start(), 1, 1000, 9)
    assert policy.layout.shares == pytest.approx(np.full((1, spec.arm_count), 1 / spec.arm_count), abs=1e-4)


def test_the_final_policy_checks(name):
    spec = CASES[name]
    learner = learner_for(spec)
    for state in (learner.start(), registry.played(name)[0]):
        policy = learner.policy(state, 7, 0, 9)
        policy.check(spec.arm_count)
        assert policy.terms.batch == 0


def test_people_of_decided_bins_still_report(name):
    """Once every bin is decided a device still sends reports that say nothing, and the learner still learns them."""
    spec = CASES[name]
    learner = learner_for(spec)
    state, _ = registry.played(name)
    only = np.zeros_like(state.active)
    only[:, 0] = True
    changed = {field.name: getattr(state, field.name) for field in fields(state)} | {"active": only}
    state = type(state)(**changed)
    policy = learner.policy(state, 2, 1000, 5)
    contexts = np.random.default_rng(0).random((50, spec.dimension))
    slots = np.arange(50, dtype=np.uint32)
    assert (policy.choose(contexts, slots) == 0).all()
    mechanism = policy.mechanism
    told = policy.contribute(contexts, slots, np.zeros(50, np.int64), np.ones(50))
    reports = mechanism.randomize(told, registry.SeededNoise(1))
    total = mechanism.add(mechanism.empty(), mechanism.parse(reports.tobytes()))
    after = learner.learn(state, policy, mechanism.release(total, registry.SeededNoise(2)))
    assert (after.active == only).all()
    assert after.seen == state.seen + 50


def test_descriptions_are_json(name):
    state, policy = registry.played(name)
    learner = learner_for(CASES[name])
    for each in (state, learner.start()):
        json.dumps(learner.describe(each), allow_nan=False)
    json.dumps(policy.describe(CASES[name].experiment.arms), allow_nan=False)
