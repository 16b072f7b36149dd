"""The tight learner: calibrated estimates, masses, Thompson shares, dropping, halving."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.partition.kernel import LENGTHS, SPREADS, Kernel
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.round_estimates import CohortShares
from privateer_server.algorithms.partition.state import PartitionState
from tests.support.partitions import random_bins, same, with_parts
from tests.support.people import rounds, wild_release
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import FALSE_ALARM

FLAT = np.array([0.9, 0.5, 0.2])


def make_flat_rewards(contexts):
    return np.tile(FLAT, (len(contexts), 1))


def state_of(spec, depths, paths, seed=0, precision=50.0):
    """A state with the given bins and random knowledge."""
    rng = np.random.default_rng(seed)
    shape = (len(depths), spec.arm_count)
    active = rng.random(shape) < 0.7
    active[:, rng.integers(spec.arm_count)] = True
    precisions = np.full(shape, precision) * rng.uniform(0.5, 2, shape)
    return with_parts(
        learner_for(spec).start(0),
        rounds=3,
        seen=3000,
        n_own_reports=3000,
        axes=rng.integers(0, spec.dimension, int(np.max(depths))),
        depths=depths,
        paths=paths,
        active=active,
        precision=precisions,
        moment=precisions * rng.normal(0, 0.3, shape),
        population=CohortShares(0.5 ** depths[None, :], np.full((1, len(depths)), 100.0)),
        mean=rng.normal(0, 0.3, shape),
        variance=rng.uniform(0.001, 0.3, shape),
    )


@pytest.mark.parametrize(
    "changes",
    [{}, *(pytest.param(changes, marks=pytest.mark.nightly) for changes in ({"privacy.epsilon": 4.0}, SHUFFLE))],
    ids=["local-1", "local-4", "shuffle"],
)
def test_estimates_are_calibrated(changes, monkeypatch):
    """Standardized errors of a flat problem's first round, 300 seeds: mean 0, and the spread that theory gives.

    In a first round the learner counts a score's second moment for its variance, so the spread is 1 less the squared
    mean's share of that: of all people where reports say nothing of the arm, of an arm's third where they name it.
    Means by a t-test, spreads by chi-square, each at the stated false-alarm rate.
    """
    monkeypatch.setattr(PartitionLearner, "split_bins", lambda self, state: state)
    spec = make_spec({**changes, "experiment.horizon": 1000})
    scores = []
    for seed in range(300):
        (played,) = rounds(spec, make_flat_rewards, seed)
        state = played.state
        scores.append(
            (state.evidence.moment[0] / state.evidence.precision[0] - (2 * FLAT - 1))
            * np.sqrt(state.evidence.precision[0])
        )
    errors = np.array(scores)
    assert (np.abs(errors.mean(axis=0)) < 5.2 * errors.std(axis=0) / np.sqrt(len(errors))).all()
    release = played.release
    named = 1 if release.hit_own == release.hit_other else 1 / len(FLAT)
    hits = named * release.hit_own + (1 - named) * release.hit_other
    spread = errors.var(axis=0, ddof=1) / (1 - (release.gain * named * (2 * FLAT - 1)) ** 2 / hits)
    low, high = (tail(FALSE_ALARM, len(errors) - 1) / (len(errors) - 1) for tail in (stats.chi2.ppf, stats.chi2.isf))
    # Reports fall into three groups at random: 10 %.
    assert (spread <= 1.1 * high).all()
    assert (spread >= 0.9 * low).all()


def test_an_overconfident_precision_is_caught():
    """Planted: the same scores with precision doubled exceed the chi-square limit."""
    errors = np.random.default_rng(0).normal(0, np.sqrt(2), 300)
    assert errors.var(ddof=1) > stats.chi2.isf(FALSE_ALARM, 299) / 299


def test_posteriors_over_many_bins_are_calibrated():
    """Scores of single bins under a known truth, across 12 runs of 20,000 people at epsilon 4.

    Of 95 % intervals at least 85 % hold the truth: the prior is fitted and rewards are no Gaussian process.
    """
    spec = make_spec({"privacy.epsilon": 4.0})
    inside = []
    for seed in range(12):
        *_, last = rounds(spec, wave, seed)
        policy, state = last.policy, last.state
        tree = state.tree
        final = replace(policy, depths=tree.depths, paths=tree.paths, axes=tree.all_axes(spec.dimension))
        lower, upper = final.edges()
        grid = np.stack(np.meshgrid(*[(np.arange(24) + 0.5) / 24] * 2), axis=-1).reshape(-1, 2)
        truth = np.array(
            [(2 * wave(low + (high - low) * grid) - 1).mean(axis=0) for low, high in zip(lower, upper, strict=True)]
        )
        inside.append((np.abs(state.posterior.mean - truth) < 1.96 * np.sqrt(state.posterior.variance)).mean())
    assert np.mean(inside) > 0.85


def wave(contexts):
    """Three arms that vary along both features."""
    phases = np.array([0.0, 2.0, 4.0])
    return 0.5 + 0.4 * np.sin(4 * contexts[:, :1] + 3 * contexts[:, 1:] + phases)


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 5), st.integers(2, 16))
def test_policies_share_coins_over_active_arms(seed, splits, dimension, arms):
    spec = make_spec(dimension=dimension, arms=arms)
    state = state_of(spec, *random_bins(np.random.default_rng(seed), splits, 40), seed)
    policy = learner_for(spec).policy(state, NewRound(2, seed, 1000))
    policy.check(spec)
    assert (policy.bins == np.flatnonzero(state.active.sum(axis=1) > 1)).all()
    assert (policy.layout.shares[~state.active[policy.bins]] == 0).all()
    assert (policy.axes[: len(state.tree.axes)] == state.tree.axes).all()


def test_exploration_ends_with_the_experiment():
    """Half of the people in, what is tried is as at the start; with 1 % left it is next to the best arm alone."""
    spec = make_spec({"experiment.horizon": 100_000})
    learner = learner_for(spec)
    state = with_parts(learner.start(0), mean=np.array([[0.1, 0.0, -0.1]]), variance=np.full((1, 3), 0.02))
    shares = [
        learner.policy(replace(state, n_own_reports=n_reports), NewRound(2, 1, 1000)).layout.shares[0]
        for n_reports in (0, 50_000, 90_000, 99_000)
    ]
    assert shares[0] == pytest.approx(shares[1])
    leader = [share[0] for share in shares]
    assert leader[1] < leader[2] < leader[3]
    assert leader[3] > 0.95


def test_wide_bins_try_arms_that_are_behind_more_than_narrow_ones():
    """The same posterior in a bin as wide as the space and, after eight halvings, in a 256th of it."""
    spec = make_spec()
    learner = learner_for(spec)
    wide = with_parts(learner.start(0), mean=np.array([[0.2, 0.0, -0.2]]), variance=np.full((1, 3), 0.02))
    narrow = with_parts(wide, depths=np.array([8]), axes=np.tile([0, 1], 4))
    others = [learner.policy(state, NewRound(2, 1, 1000)).layout.shares[0, 1:].sum() for state in (wide, narrow)]
    assert others[0] > 2 * others[1] > 0


def test_the_final_policy_plays_the_best_arm_of_every_bin():
    spec = make_spec()
    state = state_of(spec, *random_bins(np.random.default_rng(3), 12, 40))
    policy = learner_for(spec).policy(state, NewRound(2, 1, 0))
    policy.check(spec)
    mean = np.where(state.active, state.posterior.mean, -np.inf)
    assert (policy.active.argmax(axis=1) == mean.argmax(axis=1)).all()
    assert (policy.active.sum(axis=1) == 1).all()
    assert len(policy.bins) == 0


ANY = given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(2, 16),
    st.sampled_from([0.01, 0.3, 3.0]),
    st.sampled_from([10, 1000, 1_000_000]),
)


@ANY
@settings(max_examples=40)
def test_arbitrary_releases_keep_the_bins_valid(seed, dimension, arms, scale, batch):
    check_bins(seed, dimension, arms, scale, batch)


def check_bins(seed, dimension, arms, scale, batch):
    """Six rounds of arbitrary releases: bins tile, an arm is left everywhere, all is finite."""
    spec = make_spec({"privacy.epsilon": 8.0}, dimension=dimension, arms=arms)
    learner, rng = learner_for(spec), np.random.default_rng(seed)
    state = learner.start(0)
    for version in range(1, 7):
        policy = learner.policy(state, NewRound(version, seed, batch))
        policy.check(spec)
        before = state
        state = learner.learn(state, policy, wild_release(policy, rng, scale))
        assert state.seen == before.seen + batch
        assert state.active.any(axis=1).all()
        tree, evidence, shares = state.tree, state.evidence, state.population.shares
        for values in (evidence.moment, state.posterior.mean, evidence.past_moment, shares):
            assert np.isfinite(values).all()
        assert (evidence.precision >= 0).all()
        assert (state.posterior.variance > 0).all()
        assert (shares > 0).all()
        old_start = before.tree.paths << (40 - before.tree.depths)
        parent = np.searchsorted(old_start, tree.paths << (40 - tree.depths), side="right") - 1
        assert (tree.depths - before.tree.depths[parent] <= 1).all()
        assert len(tree.axes) == np.max(tree.depths)
        assert len(tree.past_depths) == len(tree.depths) - 1
    learner.policy(state, NewRound(7, seed, 0)).check(spec)


def halves_of(spec, state, ready):
    """The bins after ``ready`` ones were halved, whatever is known."""
    learner: Any = learner_for(spec)
    variance = np.where(ready[:, None], 1e-12, 10.0) * np.ones_like(state.posterior.variance)
    return learner.split_bins(with_parts(state, variance=variance, active=np.ones_like(state.active)))


def test_halves_keep_the_mean_of_their_bin():
    """The halves' mean is what the bin's was, however little is known of their difference."""
    spec = make_spec({"privacy.epsilon": 8.0})
    start = learner_for(spec).start(0)
    mean = np.array([[0.4, 0.5, -0.3]])
    state = with_parts(start, precision=np.full((1, 3), 1e6), moment=mean * 1e6)
    halved = halves_of(spec, state, np.array([True]))
    assert halved.tree.depths.tolist() == [1, 1]
    assert halved.tree.paths.tolist() == [0, 1]
    assert halved.tree.past_depths.tolist() == [0]
    assert halved.population.shares.tolist() == [[0.5, 0.5]]
    assert halved.posterior.mean.mean(axis=0) == pytest.approx(mean[0], abs=1e-4)
    kernel = Kernel(halved.hyperparameters.lengths, halved.hyperparameters.spread)
    spread = kernel.half_difference_variances(np.zeros((1, 2)), np.ones((1, 2))).max()
    assert halved.posterior.variance == pytest.approx(np.full((2, 3), spread), rel=0.01)


def test_halves_of_unlike_weight_keep_the_bins_mean():
    spec = make_spec(SHUFFLE)
    learner: Any = learner_for(spec)
    state = with_parts(learner.start(0), precision=np.full((1, 3), 1e6), moment=np.full((1, 3), 2e5))
    state = halves_of(spec, state, np.array([True]))
    state = learner.compute_posterior(
        replace(state, population=replace(state.population, shares=np.array([[0.9, 0.1]])))
    )
    assert np.array([0.9, 0.1]) @ state.posterior.mean == pytest.approx(np.full(3, 0.2), abs=1e-4)


def test_a_new_level_halves_the_dimension_that_matters_most():
    spec = make_spec(dimension=3)
    state = with_parts(learner_for(spec).start(0), lengths=np.array([9, 3, 9]))
    state = halves_of(spec, state, np.array([True]))
    assert state.tree.axes.tolist() == [1]
    state = halves_of(spec, state, np.array([True, False]))
    assert state.tree.axes.tolist() == [1, 1]
    state = halves_of(spec, with_parts(state, lengths=np.array([2, 9, 9])), np.array([False, False, True]))
    assert state.tree.axes.tolist() == [1, 1], "bins of a level are cut alike"


def test_neighbouring_bins_share_evidence():
    """Evidence on one half moves the other half, less where values change fast."""
    spec = make_spec()
    moved = []
    for place in (0, len(LENGTHS) - 1):
        state = halves_of(spec, learner_for(spec).start(0), np.array([True]))
        observations = {"precision": np.array([[100.0] * 3, [0.0] * 3]), "moment": np.array([[50.0] * 3, [0.0] * 3])}
        state = with_parts(state, lengths=np.full(2, place), spread=len(SPREADS) - 1, **observations)
        moved.append(PartitionLearner(spec).compute_posterior(state).posterior.mean[1, 0])
    assert 0 < moved[0] < 0.45 < moved[1] < 0.5


def narrow_bin(spec, **changes):
    """A state that knows its only bin of the deepest level: 1/16 wide along both features."""
    start = learner_for(spec).start(0)
    axes = np.arange(8) % 2
    return with_parts(start, axes=axes, depths=np.full(1, 8), lengths=np.full(2, len(LENGTHS) - 1), spread=0, **changes)


def test_a_clear_loser_is_dropped_and_a_close_one_stays():
    spec = make_spec()
    state = narrow_bin(spec, mean=np.array([[0.3, 0.2, -0.5]]), variance=np.full((1, 3), 0.01))
    # Deviation of a difference: .14, and a little for places within the bin.
    assert PartitionLearner(spec).update_arms(state).active.tolist() == [[True, True, False]]


def test_a_wide_bin_drops_no_arm_that_may_be_better_somewhere_in_it():
    """However even values were fitted to be."""
    spec = make_spec()
    posterior = {"mean": np.array([[0.3, 0.2, -0.5]]), "variance": np.full((1, 3), 0.01)}
    wide = with_parts(narrow_bin(spec, **posterior), axes=np.zeros(0, np.int64), depths=np.zeros(1, np.int64))
    assert PartitionLearner(spec).update_arms(wide).active.all()


def test_a_dropped_arm_comes_back_when_it_may_be_the_best_again():
    spec = make_spec()
    state = replace(learner_for(spec).start(0), active=np.array([[True, True, False]]))
    state = with_parts(state, mean=np.array([[0.3, 0.2, 0.25]]), variance=np.full((1, 3), 0.01))
    assert PartitionLearner(spec).update_arms(state).active.all()


def test_the_learner_counts_participants_by_bin_where_reports_reveal_it():
    """Nine in ten people live in one half; under shuffle and central the learner finds out, under local it cannot."""

    def crowded(rng, n):
        return np.stack([np.where(rng.random(n) < 0.9, rng.random(n) / 2, 0.5 + rng.random(n) / 2), rng.random(n)], 1)

    def ramp(contexts):
        return np.stack([contexts[:, 0], 1 - contexts[:, 0]], axis=1)

    central = {"privacy.model": "central", "privacy.delta": 1e-6}
    for changes, is_counted in ((SHUFFLE, True), (central, True), ({}, False)):
        *_, last = rounds(make_spec(changes, arms=2), ramp, 1, crowded)
        _, upper = replace(
            last.policy,
            depths=last.state.tree.depths,
            paths=last.state.tree.paths,
            axes=np.append(last.state.tree.axes, [0] * 40)[:40],
        ).edges()
        shares = last.state.population.shares[0]
        left_share = shares[upper[:, 0] <= 0.5].sum() / shares.sum()
        assert (left_share > 0.8) == is_counted
        assert is_counted or left_share == pytest.approx(0.5, abs=1e-9)
        assert isinstance(last.state, PartitionState)


def test_rounds_between_updates_change_evidence_alone():
    spec = make_spec({"experiment.horizon": 1_000_000, "privacy.epsilon": 4.0})
    learner = learner_for(spec)
    *_, last = rounds(make_spec({"privacy.epsilon": 4.0}), wave, 1)
    policy = learner.policy(last.state, NewRound(9, 1, 100))
    after = learner.learn(last.state, policy, wild_release(policy, np.random.default_rng(1), 0.3))
    assert same(after.posterior, last.state.posterior)
    assert same(after.tree, last.state.tree)
    assert (after.evidence.precision[policy.bins] >= last.state.evidence.precision[policy.bins]).all()


@pytest.mark.parametrize("is_own", [True, False])
def test_own_reports_trigger_an_update_after_a_large_source(is_own):
    """100 reports after a source's 5,000: news from the first own people, and none from more of the source."""
    source = {"name": "s", "participants": 10_000, "epsilon": 1.0, "shares": [1 / 3] * 3}
    spec = make_spec({"privacy.epsilon": 4.0, "sources": [source]})
    learner = learner_for(spec)
    state = with_parts(learner.start(0), seen=5000, computed=5000, fitted=5000)
    policy = learner.policy(state, NewRound(2, 1, 100, "" if is_own else "s"))
    after = learner.learn(state, policy, wild_release(policy, np.random.default_rng(1), 0.3))
    assert after.seen == 5100
    assert after.posterior.computed == after.hyperparameters.fitted == (5100 if is_own else 5000)


RARE = {
    "privacy.model": "none",
    "privacy.epsilon": None,
    "experiment.round_size": 500,
    "experiment.min_round_fraction": 0.2,
}


def double_one_rare_offer(contexts):
    """Return rare rewards of three offers, of which one sells twice as often."""
    return np.tile([0.01, 0.02, 0.01], (len(contexts), 1))


@pytest.mark.parametrize("declared", [None, 0.013, 0.0013, 0.13])
def test_a_base_rate_that_is_wrong_is_learned_all_the_same(declared):
    """Ten times too low or too high: means of arms are near the truth after 20,000 people, and the prior as well."""
    spec = make_spec({**RARE, **({} if declared is None else {"reward.base_rate": declared})})
    *_, last = rounds(spec, double_one_rare_offer, 5)
    level = (1 + last.state.prior.level) / 2
    assert 0.009 < level < 0.021
    contexts, coins = np.random.default_rng(0).random((999, 2)), np.arange(999, dtype=np.uint32)
    assert np.bincount(last.policy.decide(contexts, coins).arms).argmax() == 1


def test_a_first_round_expects_the_declared_rate():
    learner = learner_for(make_spec({**RARE, "reward.base_rate": 0.01}))
    state = learner.start(0)
    assert state.posterior.mean == pytest.approx(np.full((1, 3), -0.98))
    assert state.posterior.variance.max() < 0.05
    assert learner_for(make_spec(RARE)).start(0).posterior.variance.max() > 0.2
    tiny = learner_for(make_spec({**RARE, "reward.base_rate": 1e-9})).start(0)
    assert tiny.prior.level == pytest.approx(-1 + 2 / 500)
