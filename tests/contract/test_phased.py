"""The battery for phased learners: what travels, what repeats, what is refused, under every trust model."""

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from privateer.algorithms.phased import PhasedPolicy
from privateer.codec import decode, encode
from privateer.contributions import BoundedVectors
from privateer.errors import InputError, Malformed
from privateer_server.algorithms.phased import PhasedLearner
from tests.support.partitions import same
from tests.support.phased import TRUST, phased_spec

LEARNERS: dict[type, dict[str, dict[str, object]]] = {PhasedLearner: TRUST}
"""By trust model; see `tests.support.phased.phased_spec`."""


@pytest.fixture(params=TRUST)
def played(request):
    """Spec, learner, state and policy after two phases."""
    spec = phased_spec(trust=request.param)
    learner = PhasedLearner(spec)
    state, rng = learner.start(), np.random.default_rng(5)
    for phase in (1, 2):
        policy = learner.policy(state, phase, learner.batch(state), 9)
        state = learner.learn(state, policy, release_of(policy, rng))
    return spec, learner, state, policy


def release_of(policy, rng):
    slots = rng.integers(0, 2**32, policy.terms.batch, dtype=np.uint32)
    averages = rng.normal(size=(policy.terms.batch, len(policy.support)))
    return policy.mechanism.simulate(policy.contribute(slots, averages), rng)


def test_state_and_policy_round_trip(played):
    _, learner, state, policy = played
    for value in (state, learner.start(), policy):
        assert same(decode(encode(value), type(value)), value)
    assert type(state) is learner.state_type


def test_decoded_values_learn_alike_and_nothing_changes_in_place(played):
    _, learner, state, policy = played
    release, before = release_of(policy, np.random.default_rng(1)), deepcopy(state)
    expected = learner.learn(state, policy, release)
    assert same(state, before)
    again = learner.learn(decode(encode(state), type(state)), decode(encode(policy), PhasedPolicy), release)
    assert same(again, expected)


def test_policy_is_a_function_of_state_and_seed(played):
    _, learner, state, _ = played
    one, again, other = (learner.policy(state, 3, learner.batch(state), seed) for seed in (5, 5, 6))
    assert same(one, again)
    assert set(one.asked(5000).tolist()) != set(other.asked(5000).tolist())


def test_policies_check_and_ask_whom_the_schedule_says(played):
    spec, learner, state, policy = played
    policy.check(30)
    following = learner.policy(state, 3, learner.batch(state), 9)
    following.check(30)
    assert following.terms.batch == len(following.asked(5000)) == spec.clients(3)
    assert not set(following.asked(5000)) & set(policy.asked(5000))


@pytest.mark.parametrize(
    "wrong",
    [
        {"active": np.array([0, 30])},
        {"active": np.array([-1, 3])},
        {"active": np.array([3, 3])},
        {"active": np.zeros(0, np.int64)},
        {"active": np.arange(30.0)},
        {"support": np.array([[0, 1]])},
        {"plays": np.zeros(5, np.int64)},
        {"plays": np.array([1])},
        {"start": -1},
    ],
    ids=str,
)
def test_policies_that_no_learner_makes_are_refused(wrong):
    spec = phased_spec()
    learner = PhasedLearner(spec)
    policy = learner.policy(learner.start(), 1, 2, 9)
    with pytest.raises(Malformed):
        replace(policy, **wrong).check(30)


def test_what_people_tell_is_clipped_whatever_they_observe(played):
    """By the mechanism: contributions beyond the range and at its end have releases of the same law, draw for draw."""
    _, _, _, policy = played
    slots = np.arange(policy.terms.batch, dtype=np.uint32)
    bound = policy.terms.bound
    far, near = (np.full((policy.terms.batch, len(policy.support)), policy.middle + x * bound) for x in (50.0, 1.0))
    left, right = (
        policy.mechanism.simulate(policy.contribute(slots, values), np.random.default_rng(3)) for values in (far, near)
    )
    assert same(left, right)
    assert isinstance(policy.contribute(slots, near), BoundedVectors)


def test_contributions_of_another_size_are_refused_without_an_echo(played):
    _, _, _, policy = played
    with pytest.raises(InputError) as refused:
        policy.contribute(np.zeros(1, np.uint32), np.full((1, len(policy.support) + 1), 0.123456))
    assert "0.123" not in str(refused.value)


def test_descriptions_are_json(played):
    _, learner, state, policy = played
    for described in (learner.describe(state), learner.describe(learner.start()), policy.describe()):
        json.dumps(described, allow_nan=False)
