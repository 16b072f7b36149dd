"""Rounds that are read again when more is known of contexts."""

from dataclasses import replace

import numpy as np

from privateer_core.codec import decode, encode
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.linear.learner import LinearState
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec

TRUTH = np.array([0.5, 0.8, 0.0, 0.0, 0.0])
NOISE = 2e4
"""Variance that hides what 2,000 people tell, and not what 100,000 do."""


def simulate_release(policy, people, rng):
    """Release contributions with features spread a quarter as far as assumed, and nothing on the second arm."""
    contexts = 0.5 + 0.05 * rng.normal(size=(people, 4))
    rewards = (rng.random(people) < policy.design.rows(contexts) @ TRUTH).astype(float)
    reports = policy.contribute(contexts, np.zeros(people, np.uint32), Arms(np.zeros(people, np.int64)), rewards)
    sums = np.tile(reports.values.sum(axis=0), policy.classes)
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
    old, new = learner.statistics(first, past_round, 1 << 13), learner.statistics(later, past_round, 1 << 13)
    assert np.allclose(old[0], first.information, rtol=0.2, atol=0.05 * np.abs(old[0]).max())
    slopes = [np.trace(statistics[0].sum(axis=0)[1:, 1:]) for statistics in (old, new)]
    assert slopes[1] < 0.3 * slopes[0]


def test_recent_and_settled_evidence_add_up():
    learner, state = rounds("shuffle", [1000] * 12)
    assert len(state.recent.rounds) == 10
    last = state.recent.rounds[-1]
    statistics = [learner.statistics(state, past_round, 1 << 13) for past_round in state.recent.rounds[:-1]]
    statistics.append(learner.statistics(state, last, 1 << 15))
    assert np.allclose(state.information, state.recent.information + sum(information for information, _ in statistics))
    assert np.allclose(state.scores, state.recent.scores + sum(scores for _, scores in statistics))
    assert state.recent.information.any()


def test_a_decoded_state_has_its_recent_rounds():
    learner, state = rounds("shuffle", [1000, 1000])
    decoded = decode(encode(state), LinearState)
    policy = learner.policy(decoded, NewRound(3, 3, 1000))
    release = simulate_release(policy, 1000, np.random.default_rng(9))
    after = [learner.learn(version, policy, release) for version in (state, decoded)]
    assert np.array_equal(after[0].information, after[1].information)
    assert encode(after[0]) == encode(after[1])


def test_rounds_without_moments_or_with_late_reports_are_settled_at_once():
    assert rounds("local", [1000, 1000])[1].recent.rounds == ()
    learner, state = rounds("shuffle", [1000])
    earlier = state.recent.rounds[0].policy
    policy = learner.policy(state, NewRound(2, 3, 1000))
    followed = policy.with_deciders([(earlier, 0.5), (policy, 0.5)])
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
