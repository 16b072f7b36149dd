"""Rounds that are read again when more is known of contexts."""

from dataclasses import replace

import numpy as np

from privateer_core.codec import decode, encode
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.linear.learner import LinearState
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec

TRUTH = np.array([0.5, 0.8, 0.0, 0.0, 0.0])
NOISE = 2e4
"""Variance that hides what 2,000 people tell, and not what 100,000 do."""


def told(policy, people, rng):
    """What people tell whose features spread a quarter as far as is assumed, and of the second arm nothing."""
    contexts = 0.5 + 0.05 * rng.normal(size=(people, 4))
    rewards = (rng.random(people) < policy.design.rows(contexts) @ TRUTH).astype(float)
    made = policy.contribute(contexts, np.zeros(people, np.uint32), Arms(np.zeros(people, np.int64)), rewards)
    sums = np.tile(made.values.sum(axis=0), policy.classes)
    return VectorSums(people, sums + np.sqrt(NOISE) * rng.normal(size=sums.shape), NOISE)


def rounds(model, counts):
    """Schedule, steps and the state after rounds of so many people."""
    schedule, rng = Schedule(linear_spec(model)), np.random.default_rng(8)
    state = schedule.learner.start(0)
    for version, people in enumerate(counts, 1):
        policy = schedule.learner.policy(state, NewRound(version, 3, people))
        state = schedule.learner.learn(state, policy, told(policy, people, rng))
    return schedule.learner, state


def test_what_a_first_round_said_is_read_by_what_is_known_now():
    """Its information on the slopes falls to what features tell that spread a quarter as far."""
    learner, first = rounds("shuffle", [2000])
    known = rounds("shuffle", [2000, 100_000])[1]
    kept = first.recent.rounds[0]
    then, now = learner.statistics(first, kept, 1 << 13), learner.statistics(known, kept, 1 << 13)
    assert np.allclose(then[0], first.information, rtol=0.2, atol=0.05 * np.abs(then[0]).max())
    slopes = [np.trace(one[0].sum(axis=0)[1:, 1:]) for one in (then, now)]
    assert slopes[1] < 0.3 * slopes[0]


def test_what_is_kept_and_what_is_settled_add_up():
    learner, state = rounds("shuffle", [1000] * 12)
    assert len(state.recent.rounds) == 10
    last = state.recent.rounds[-1]
    said = [learner.statistics(state, one, 1 << 13) for one in state.recent.rounds[:-1]]
    said.append(learner.statistics(state, last, 1 << 15))
    assert np.allclose(state.information, state.recent.information + sum(one for one, _ in said))
    assert np.allclose(state.scores, state.recent.scores + sum(one for _, one in said))
    assert state.recent.information.any()


def test_states_travel_with_their_rounds():
    learner, state = rounds("shuffle", [1000, 1000])
    again = decode(encode(state), LinearState)
    policy = learner.policy(again, NewRound(3, 3, 1000))
    release = told(policy, 1000, np.random.default_rng(9))
    after = [learner.learn(one, policy, release) for one in (state, again)]
    assert np.array_equal(after[0].information, after[1].information)
    assert encode(after[0]) == encode(after[1])


def test_no_round_is_kept_where_nobody_tells_of_contexts_or_others_decided():
    assert rounds("local", [1000, 1000])[1].recent.rounds == ()
    learner, state = rounds("shuffle", [1000])
    earlier = state.recent.rounds[0].policy
    policy = learner.policy(state, NewRound(2, 3, 1000))
    followed = policy.followed([(earlier, 0.5), (policy, 0.5)])
    after = learner.learn(state, followed, told(policy, 1000, np.random.default_rng(9)))
    assert len(after.recent.rounds) == 1
    assert not np.array_equal(after.recent.information, state.recent.information)


def test_more_arms_and_a_new_experiment_settle_what_was_said():
    learner, state = rounds("shuffle", [1000])
    spec = learner.spec
    more = spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"arms": ("a", "b", "c")})})
    wider = Schedule(more).learner.changed(state, spec)
    assert wider.recent is None
    assert np.array_equal(wider.information[:2], state.information)
    assert learner.begun(state, learner.spec) == replace(state, reported=0, recent=None)
