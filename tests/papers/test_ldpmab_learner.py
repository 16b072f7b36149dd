"""The published learner: estimates and radii of the paper's equations, dropping and refining."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_papers.paper_1.laplace_cells import CellSums
from privateer_server.algorithms import NewRound, learner_for
from tests.support.specs import make_spec

CHANGES = {"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 2.0, "experiment.horizon": 1 << 16}


def learn_release(rewards, counts, reports, **sizes):
    learner = learner_for(make_spec({**CHANGES}, **sizes))
    policy = learner.policy(learner.start(0), NewRound(1, 5, reports))
    release = CellSums(reports, np.array([rewards], float), np.array([counts], float))
    return learner, learner.learn(learner.start(0), policy, release)


def test_radius_is_that_of_the_paper():
    """Eq. (14): sqrt(C_n max(people / epsilon^2, count)) / count with C_n = 2 log2 n = 32."""
    learner, state = learn_release([30.0, 20.0, 10.0], [100.0, 100.0, 0.5], 300)
    mean, radius = learner._estimates(state)
    assert mean[0, :2] == pytest.approx([0.3, 0.2])
    assert radius[0, 0] == pytest.approx(math.sqrt(32 * 100) / 100)
    assert radius[0, 2] == pytest.approx(math.sqrt(32 * 75) / 0.5)


SOURCE = {"name": "clinic", "participants": 1 << 12, "epsilon": 4.0, "shares": "unknown"}


def test_sources_are_weighted_as_in_the_paper():
    """Eq. (26) to (28): a cohort weighs epsilon^2 * count / people, at most 1, and nothing before log2(n)^2 people."""
    learner: Any = learner_for(make_spec({**CHANGES, "sources": [SOURCE]}, arms=2))
    sums = {
        "rewards": np.array([[[30.0, 6.0]], [[90.0, 40.0]]]),
        "counts": np.array([[[60.0, 30.0]], [[100.0, 100.0]]]),
    }
    state = replace(learner.start(0), people=np.array([[600], [600]]), **sums)
    mean, radius = learner._estimates(state)
    # The source weighs 1, since 16 * 100 / 600 is more; the own people 4 * 60 / 600 for the first arm.
    assert mean[0] == pytest.approx([(90 + 0.4 * 30) / (100 + 0.4 * 60), (40 + 0.2 * 6) / (100 + 0.2 * 30)])
    spread = 32 * (1 * 100 + 0.4**2 * 150)
    assert radius[0, 0] == pytest.approx(math.sqrt(spread) / (100 + 0.4 * 60))


def test_a_release_counts_for_its_cohort():
    learner: Any = learner_for(make_spec({**CHANGES, "sources": [SOURCE]}, arms=2))
    policy = learner.policy(learner.start(0), NewRound(1, 5, 600, "clinic"))
    state = learner.learn(learner.start(0), policy, CellSums(600, np.array([[3.0, 2.0]]), np.array([[5.0, 5.0]])))
    assert state.people.tolist() == [[0], [600]]
    assert state.rewards.tolist() == [[[0.0, 0.0]], [[3.0, 2.0]]]


def test_a_source_of_few_people_has_no_weight():
    learner: Any = learner_for(make_spec({**CHANGES, "sources": [SOURCE]}, arms=2))
    policy = learner.policy(learner.start(0), NewRound(1, 5, 200, "clinic"))
    state = learner.learn(learner.start(0), policy, CellSums(200, np.array([[90.0, 40.0]]), np.array([[100.0, 100.0]])))
    assert np.isinf(learner._estimates(state)[1]).all()


def test_a_clear_loser_is_dropped_after_exploration():
    _, state = learn_release([90_000.0, 10_000.0, 88_000.0], [100_000.0] * 3, 300_000)
    assert state.active.all(axis=0).tolist() == [True, False, True]


def test_nothing_is_dropped_before_exploration():
    _, state = learn_release([100.0, 0.0, 0.0], [100.0] * 3, 200)
    assert state.active.all()


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 16), st.sampled_from([10, 1000, 100_000]))
def test_whatever_is_released_the_bins_stay_sound(seed, dimension, arms, batch):
    learner, rng = learner_for(make_spec(CHANGES, dimension=dimension, arms=arms)), np.random.default_rng(seed)
    state = learner.start(0)
    for version in range(1, 7):
        policy = learner.policy(state, NewRound(version, seed, batch))
        policy.check(learner.spec)
        shape = (len(state.depths), arms)
        counts = rng.normal(batch / arms, batch, shape)
        before = state
        state = learner.learn(state, policy, CellSums(batch, counts * rng.random(shape), counts))
        assert state.seen == before.seen + batch
        assert state.active.any(axis=1).all()
        bins = len(state.depths)
        assert state.people.shape == (1, bins)
        assert state.rewards.shape == state.counts.shape == (1, bins, arms)
        assert np.isfinite(state.rewards).all()
        parent = (
            np.searchsorted(before.paths << (40 - before.depths), state.paths << (40 - state.depths), side="right") - 1
        )
        assert (state.active <= before.active[parent]).all()
