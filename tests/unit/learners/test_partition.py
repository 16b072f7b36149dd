"""The tight learner: calibrated posteriors, Thompson shares, dropping, splitting."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privateer.contributions import KeyedSums
from privateer.privatizers import privatizer_for
from privateer.slots import UNIT
from privateer_server.learners import learner_for
from privateer_server.learners.partition import PartitionLearner, PartitionState, best_chances
from tests.support.partitions import random_bins
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import FALSE_ALARM

FLAT = np.array([0.9, 0.5, 0.2])


def flat(contexts):
    return np.tile(FLAT, (len(contexts), 1))


def state_of(spec, depths, paths, seed=0, precision=50.0):
    """A state with the given bins and random knowledge."""
    rng = np.random.default_rng(seed)
    shape = (len(depths), spec.arm_count)
    active = rng.random(shape) < 0.7
    active[:, rng.integers(spec.arm_count)] = True
    known = np.full(shape, precision) * rng.uniform(0.5, 2, shape)
    moment = known * rng.normal(0, 0.3, shape) * 0.5 ** depths[:, None]
    return PartitionState(3, 3000, depths, paths, active, known, moment, np.full(len(depths), 2.0))


@given(st.integers(0, 2**32), st.integers(2, 16))
def test_best_chances_are_a_distribution_over_active_arms(seed, arms):
    rng = np.random.default_rng(seed)
    active = rng.random((5, arms)) < 0.6
    active[:, 0] = True
    mean, deviation = rng.normal(0, 1, (5, arms)), 10 ** rng.uniform(-3, 1, (5, arms))
    chances = best_chances(mean, deviation, active)
    assert chances.sum(axis=1) == pytest.approx(np.ones(5))
    assert (chances[~active] == 0).all()
    assert (chances >= 0).all()


def test_best_chances_match_draws():
    """Gauss-Hermite against 400,000 Thompson draws; six standard errors and .005 for the quadrature."""
    rng = np.random.default_rng(1)
    mean, deviation = np.array([[0.0, 0.1, -0.2, 0.4]]), np.array([[0.3, 0.2, 0.5, 0.1]])
    draws = rng.normal(mean, deviation, (400_000, 4))
    share = np.bincount(draws.argmax(axis=1), minlength=4) / 400_000
    assert best_chances(mean, deviation, np.ones((1, 4), bool))[0] == pytest.approx(share, abs=0.005 + 6 * 0.0008)


def test_two_arms_match_the_closed_form():
    mean, deviation = np.array([[0.2, 0.0]]), np.array([[0.3, 0.4]])
    expected = stats.norm.cdf(0.2 / 0.5)
    assert best_chances(mean, deviation, np.ones((1, 2), bool))[0, 0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("confidence", ["practical", "proved"])
@pytest.mark.parametrize("changes", [{}, {"privacy.epsilon": 4.0}, SHUFFLE], ids=["local-1", "local-4", "shuffle"])
def test_posteriors_are_calibrated(confidence, changes, monkeypatch):
    """Standardized errors of a flat problem's first round, 300 seeds: mean 0, and the spread that theory gives.

    The learner counts a score's second moment for its variance, so the spread is 1 less the squared mean's share.
    Means by a t-test, spreads by chi-square, each at the stated false-alarm rate.
    """
    monkeypatch.setattr(PartitionLearner, "_split", lambda self, state: state)
    spec = make_spec({**changes, "algorithm.confidence": confidence, "experiment.horizon": 1000})
    scores = []
    for seed in range(300):
        (played,) = rounds(spec, flat, seed)
        state = played.state
        prior = 0.0 if confidence == "proved" else 4.0
        gained = state.precision[0] - prior
        scores.append((state.moment[0] / gained - (2 * FLAT - 1)) * np.sqrt(gained))
    errors = np.array(scores)
    assert (np.abs(errors.mean(axis=0)) < 5.2 * errors.std(axis=0) / np.sqrt(len(errors))).all()
    release = played.release
    spread = errors.var(axis=0, ddof=1) / (1 - (release.gain * (2 * FLAT - 1)) ** 2 / release.hit_own)
    low, high = (tail(FALSE_ALARM, len(errors) - 1) / (len(errors) - 1) for tail in (stats.chi2.ppf, stats.chi2.isf))
    # A practical variance is itself estimated, and reports fall into three groups at random: 10 %.
    assert (spread <= 1.1 * high).all()
    assert (spread >= 0.9 * low).all()


def test_an_overconfident_precision_is_caught():
    """Planted: the same scores with precision doubled exceed the chi-square limit."""
    errors = np.random.default_rng(0).normal(0, np.sqrt(2), 300)
    assert errors.var(ddof=1) > stats.chi2.isf(FALSE_ALARM, 299) / 299


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 5), st.integers(2, 16), st.booleans())
def test_policies_share_slots_over_active_arms(seed, splits, dimension, arms, proved):
    spec = make_spec({"algorithm.confidence": "proved" if proved else "practical"}, dimension=dimension, arms=arms)
    state = state_of(spec, *random_bins(np.random.default_rng(seed), splits, 40), seed)
    policy = learner_for(spec).policy(state, 2, 1000, seed)
    policy.check(arms)
    shares = policy.layout.shares
    assert (policy.bins == np.flatnonzero(state.active.sum(axis=1) > 1)).all()
    if proved:
        equal = 1 / state.active[policy.bins].sum(axis=1, keepdims=True) * state.active[policy.bins]
        assert shares == pytest.approx(equal, abs=2 / UNIT)
    else:
        assert (shares[state.active[policy.bins]] >= 0.02 - 2 / UNIT).all()


def test_the_final_policy_plays_the_best_arm_of_every_bin():
    spec = make_spec()
    state = state_of(spec, *random_bins(np.random.default_rng(3), 12, 40))
    policy = learner_for(spec).policy(state, 2, 0, 1)
    policy.check(3)
    mean = np.where(state.active, state.moment / state.precision, -np.inf)
    assert (policy.active.argmax(axis=1) == mean.argmax(axis=1)).all()
    assert (policy.active.sum(axis=1) == 1).all()
    assert len(policy.bins) == 0


def release_for(policy, rng, scale):
    """Any release of the right shape, wild ones included."""
    keys, arms = policy.layout.keys, policy.layout.groups
    reports = policy.terms.batch
    counts = rng.multinomial(reports, np.ones(arms) / arms, keys) if keys else np.zeros((0, arms), np.int64)
    sums = np.rint(counts * np.clip(rng.normal(0, scale, (keys, arms)), -1, 1)).astype(np.int64)
    hits = np.minimum(reports, np.abs(sums).sum(axis=1) + rng.integers(0, reports + 1, keys))
    response = privatizer_for(policy.layout, policy.terms).response
    own = response.truth + response.other
    return KeyedSums(reports, sums, counts, hits, response.gain, own, own)


@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(2, 16),
    st.booleans(),
    st.sampled_from([0.01, 0.3, 3.0]),
    st.sampled_from([10, 1000, 1_000_000]),
)
def test_whatever_is_released_the_bins_stay_sound(seed, dimension, arms, proved, scale, batch):
    """Six rounds of arbitrary releases: bins tile, arms stay, nothing comes back, all is finite."""
    confidence = "proved" if proved else "practical"
    spec = make_spec({"algorithm.confidence": confidence, "privacy.epsilon": 8.0}, dimension=dimension, arms=arms)
    learner, rng = learner_for(spec), np.random.default_rng(seed)
    state = learner.start()
    for version in range(1, 7):
        policy = learner.policy(state, version, batch, seed)
        policy.check(arms)
        before = state
        state = learner.learn(state, policy, release_for(policy, rng, scale))
        assert state.seen == before.seen + batch
        assert state.active.any(axis=1).all()
        assert np.isfinite(state.moment).all()
        assert np.isfinite(state.precision).all()
        assert (state.precision >= 0).all()
        assert proved or (state.precision > 0).all()
        assert (state.heaviest >= 0).all()
        old_start = before.paths << (40 - before.depths)
        parent = np.searchsorted(old_start, state.paths << (40 - state.depths), side="right") - 1
        assert (state.active <= before.active[parent]).all(), "a dropped arm came back"
        assert (state.depths - before.depths[parent] <= 1).all()
        split = state.depths > before.depths[parent]
        assert (state.active[split].sum(axis=1) > 1).all(), "only undecided bins are halved"
    learner.policy(state, 7, 0, seed).check(arms)


def test_children_inherit_the_mean_and_half_the_mass():
    spec = make_spec({"privacy.epsilon": 8.0})
    learner = learner_for(spec)
    start = learner.start()
    state = replace(start, precision=np.full((1, 3), 1e6), moment=np.array([[0.2, 0.25, 0.22]]) * 1e6)
    halved = learner._halved(state, np.array([True]))
    assert halved.depths.tolist() == [1, 1]
    assert halved.paths.tolist() == [0, 1]
    assert halved.moment / halved.precision == pytest.approx(np.array([[0.1, 0.125, 0.11]] * 2))
    spread = 1.2 * 0.5 * 2**-0.5
    assert 1 / halved.precision == pytest.approx(np.full((2, 3), 1e-6 / 4 + spread**2))


def test_a_clear_loser_is_dropped_and_a_close_one_stays():
    spec = make_spec()
    learner = learner_for(spec)
    depths = np.full(1, 6)
    state = replace(
        learner.start(),
        depths=depths,
        precision=np.full((1, 3), 1e8),
        moment=np.array([[0.01, 0.009, -0.012]]) * 1e8,
    )
    # Two spreads are 2.8e-4 and the bin's width explains 2 * 2^-3 / 64 = .0039.
    assert learner._surviving(state)[0].tolist() == [True, True, False]
