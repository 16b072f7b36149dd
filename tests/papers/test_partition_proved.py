"""The proved learner: calibrated estimates, bounds at all times, and no arm dropped where it is best."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT
from privateer_papers.paper_1 import proved
from privateer_papers.paper_1.proved import ProvedLearner, ProvedState, martingale_upper_bound
from privateer_server.algorithms import NewRound, learner_for
from tests.support.partitions import random_bins
from tests.support.people import rounds, wild_release
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import FALSE_ALARM

FLAT = np.array([0.9, 0.5, 0.2])
PROVED = {"algorithm.name": "paper-1-proved"}


def flat_means(contexts):
    return np.tile(FLAT, (len(contexts), 1))


def state_with_estimates(mean, precision, arms=3, depth=0, heaviest=0.0):
    """Return a learner, and its state of a single bin with these estimates."""
    learner: Any = learner_for(make_spec(PROVED, arms=arms))
    means, shape = np.array([mean], float), (1, arms)
    active, depths = np.ones(shape, bool), np.array([depth])
    precisions = np.broadcast_to(np.array(precision, float), shape)
    return learner, ProvedState(
        3, 3000, depths, np.zeros(1, np.int64), active, precisions, means * precisions, np.array([heaviest])
    )


@pytest.mark.parametrize("changes", [{}, {"privacy.epsilon": 4.0}, SHUFFLE], ids=["local-1", "local-4", "shuffle"])
def test_estimates_are_calibrated(changes, monkeypatch):
    """Standardized errors of a flat problem's first round, 300 seeds: mean 0, and no more spread than is claimed."""
    monkeypatch.setattr(ProvedLearner, "halve_ready_bins", lambda self, state, ready: state)
    spec = make_spec({**changes, **PROVED, "experiment.horizon": 1000})
    errors = []
    for seed in range(300):
        (played,) = rounds(spec, flat_means, seed)
        state = played.state
        errors.append((state.moment[0] / state.precision[0] - (2 * FLAT - 1)) * np.sqrt(state.precision[0]))
    errors_by_arm = np.array(errors)
    assert (np.abs(errors_by_arm.mean(axis=0)) < 5.2 * errors_by_arm.std(axis=0) / np.sqrt(len(errors_by_arm))).all()
    assert (errors_by_arm.var(axis=0, ddof=1) <= stats.chi2.isf(FALSE_ALARM, 299) / 299).all()


def test_scores_that_are_signs_have_no_heavy_steps(monkeypatch):
    monkeypatch.setattr(ProvedLearner, "halve_ready_bins", lambda self, state, ready: state)
    learner: Any = learner_for(make_spec(PROVED))
    policy = learner.policy(learner.start(0), NewRound(1, 1, 1000))
    sparse = wild_release(policy, np.random.default_rng(1), 0.3)
    signs = msgspec.structs.replace(sparse, hit_own=1.0, hit_other=1.0, hit_none=1.0)
    assert learner.learn(learner.start(0), policy, signs).heaviest.tolist() == [0.0]
    assert learner.learn(learner.start(0), policy, sparse).heaviest[0] > 0


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 5), st.integers(2, 16))
def test_coins_are_shared_equally_over_active_arms(seed, splits, dimension, arms):
    spec, rng = make_spec(PROVED, dimension=dimension, arms=arms), np.random.default_rng(seed)
    depths, paths = random_bins(rng, splits, 40)
    active = rng.random((len(depths), arms)) < 0.7
    active[:, rng.integers(arms)] = True
    state = replace(learner_for(spec).start(0), depths=depths, paths=paths, active=active)
    precision = rng.uniform(0, 9, active.shape)
    state = replace(state, precision=precision, moment=precision, heaviest=np.ones(len(depths)))
    policy = learner_for(spec).policy(state, NewRound(2, seed, 1000))
    policy.check(spec)
    assert (policy.bins == np.flatnonzero(active.sum(axis=1) > 1)).all()
    equal = 1 / active[policy.bins].sum(axis=1, keepdims=True) * active[policy.bins]
    assert policy.layout.shares == pytest.approx(equal, abs=2 / UNIT)


@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(2, 16),
    st.sampled_from([0.01, 0.3, 3.0]),
    st.sampled_from([10, 1000, 1_000_000]),
)
def test_whatever_is_released_the_bins_stay_sound(seed, dimension, arms, scale, batch):
    """Six rounds of arbitrary releases: bins tile, arms stay, nothing comes back, all is finite."""
    spec = make_spec({**PROVED, "privacy.epsilon": 8.0}, dimension=dimension, arms=arms)
    learner, rng = learner_for(spec), np.random.default_rng(seed)
    state = learner.start(0)
    for version in range(1, 7):
        policy = learner.policy(state, NewRound(version, seed, batch))
        policy.check(spec)
        before = state
        state = learner.learn(state, policy, wild_release(policy, rng, scale))
        assert state.seen == before.seen + batch
        assert state.active.any(axis=1).all()
        assert np.isfinite(state.moment).all()
        assert (state.precision >= 0).all()
        assert (state.heaviest >= 0).all()
        old_start = before.paths << (40 - before.depths)
        parent = np.searchsorted(old_start, state.paths << (40 - state.depths), side="right") - 1
        assert (state.active <= before.active[parent]).all(), "a dropped arm came back"
        split = state.depths > before.depths[parent]
        assert (state.active[split].sum(axis=1) > 1).all(), "only undecided bins are halved"
    learner.policy(state, NewRound(7, seed, 0)).check(spec)


def test_a_lead_is_bounded_from_below_and_beyond_all_doubt_only_with_knowledge():
    learner, state = state_with_estimates([0.5, 0.2, -0.4], 1e5)
    lower, width = learner.compute_lead_bounds(state)
    assert lower[0, 0, 1] == pytest.approx(0.3 - width[0, 0, 1])
    assert 0 < width[0, 0, 1] < 0.05
    assert lower[0, 1, 0] < -0.3
    _, ignorant = state_with_estimates([0.5, 0.2, -0.4], [1e5, 1e5, 0.0])
    lower, width = learner.compute_lead_bounds(ignorant)
    assert (lower[0, 2] == -np.inf).all()
    assert (width[0, :, 2] == np.inf).all()


def test_equal_precisions_are_compared_jointly_and_unequal_ones_separately():
    """The width of a difference: sqrt(1/p + 1/q) where p and q agree, and no wider than the sum of both otherwise."""
    learner, equal = state_with_estimates([0.0, 0.0], 1e4, arms=2)
    _, unequal = state_with_estimates([0.0, 0.0], [1e4, 1e6], arms=2)
    equal_width = learner.compute_lead_bounds(equal)[1][0, 0, 1]
    unequal_width = learner.compute_lead_bounds(unequal)[1][0, 0, 1]
    separate_width = equal_width * np.sqrt(2) / 2 * (1 + 0.1)
    assert equal_width / 2 < unequal_width < 1.3 * separate_width


def test_deeper_bins_more_arms_and_heavier_steps_need_more():
    widths = [
        learner.compute_lead_bounds(state)[1][0, 0, 1]
        for learner, state in (
            state_with_estimates([0.0] * 3, 1e4),
            state_with_estimates([0.0] * 3, 1e4, depth=3),
            state_with_estimates([0.0] * 3, 1e4, depth=6),
            state_with_estimates([0.0] * 3, 1e4, depth=6, heaviest=90.0),
            state_with_estimates([0.0] * 9, 1e4, arms=9, depth=6, heaviest=90.0),
        )
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 5


def test_the_bias_bound_of_a_bin_is_no_less_than_any_lead_by_its_width():
    """Against arms as far apart as Lipschitz means allow, from every corner and many places of bins."""
    spec = make_spec({**PROVED, "algorithm.lipschitz": 2.0, "algorithm.density_bound": 3.0}, dimension=3)
    learner: Any = learner_for(spec)
    rng = np.random.default_rng(1)
    for depth in range(7):
        bias = learner._bias_bounds(np.array([depth]), np.zeros(1, np.int64))[0]
        widths = 0.5 ** np.bincount(learner.axes[:depth], minlength=3)
        places = rng.random((20_000, 3)) * widths
        for at in [np.zeros(3), widths, *(rng.random((5, 3)) * widths)]:
            lead = 3.0 * np.prod(widths) * (4 * 2.0 * np.linalg.norm(places - at, axis=1)).mean()
            assert lead <= 1.01 * bias
        corner = 3.0 * np.prod(widths) * (4 * 2.0 * np.linalg.norm(places, axis=1)).mean()
        assert corner > 0.9 * bias


def test_a_clear_loser_is_dropped_and_a_close_one_stays():
    learner, state = state_with_estimates([0.05, 0.045, -0.05], 1e12, depth=8)
    bias = learner._bias_bounds(state.depths, state.paths)[0]
    state = replace(state, moment=np.array([[2.5, 2.0, 0.9]]) * bias * 1e12)
    lower_bounds, _ = learner.compute_lead_bounds(state)
    assert learner._keep_undominated_arms(state, lower_bounds).tolist() == [[True, True, False]]


def test_halves_start_with_nothing_known():
    learner, state = state_with_estimates([0.5, 0.45, 0.4], 1e6)
    halved = learner.halve_ready_bins(state, learner.find_ready_bins(state, learner.compute_lead_bounds(state)[1]))
    assert halved.depths.tolist() == [1, 1]
    assert halved.paths.tolist() == [0, 1]
    assert (halved.precision == 0).all()
    assert (halved.moment == 0).all()
    _, unknown = state_with_estimates([0.5, 0.45, 0.4], 1.0)
    assert learner.halve_ready_bins(
        unknown, learner.find_ready_bins(unknown, learner.compute_lead_bounds(unknown)[1])
    ).depths.tolist() == [0]


def test_without_reports_there_is_no_answer_and_no_mean_of_a_bin():
    learner: Any = learner_for(make_spec(PROVED))
    assert not learner.answer(learner.start(0)).says_something
    assert learner.bin_means(learner.start(0)).bins[0].means == ()


def test_estimates_begin_anew_with_each_cohort():
    source = {"name": "clinic", "participants": 2000, "epsilon": 0.1, "shares": [0.5, 0.5]}
    spec = make_spec({"algorithm.name": "paper-1-proved", "privacy.epsilon": 0.1, "sources": [source]}, arms=2)
    learner = learner_for(spec)
    state = replace(learner.start(0), precision=np.full((1, 2), 5.0), moment=np.ones((1, 2)), evidence_cohort="clinic")
    for cohort, is_kept in (("clinic", True), ("", False)):
        policy = learner.policy(state, NewRound(1, 5, 1000, cohort))
        nobody = np.full(1000, -1)
        keyed_values = KeyedValues(np.zeros(1000, np.uint32), nobody, nobody, np.zeros(1000))
        mechanism = policy.mechanism
        after = learner.learn(state, policy, mechanism.simulate(keyed_values, np.random.default_rng(1)))
        assert bool(after.precision.max() >= 5) is is_kept
        assert after.evidence_cohort == cohort


CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
PROMISE_PROVED = {"algorithm.name": "paper-1-proved", "experiment.horizon": 80_000, "experiment.round_size": 4000}


def proved_spec(**changes):
    return make_spec({**PROMISE_PROVED, **changes}, dimension=1, arms=2)


def outcome(spec, means, seed, sample=None):
    """Whether an arm was dropped in a bin where it is the best somewhere, on a grid, and how many were dropped."""
    contexts = (np.arange(1024)[:, None] + 0.5) / 1024
    best = means(contexts).argmax(axis=1)
    *_, last = rounds(spec, means, seed, sample)
    bins = replace(last.policy, depths=last.state.depths, paths=last.state.paths).locate(contexts)
    return not last.state.active[bins, best].all(), int((~last.state.active).sum())


def steep_means(contexts):
    """Two arms that cross at .4 with slopes 1 and -1 and differ by up to .9; Lipschitz with constant 1."""
    gap = np.clip(contexts[:, 0] - 0.4, -0.45, 0.45)
    return np.stack([0.5 + gap, 0.5 - gap], axis=1)


def crowded_contexts(rng, n):
    """Contexts whose density is up to 7.125."""
    return np.where(rng.random((n, 1)) < 0.875, rng.random((n, 1)) / 8, rng.random((n, 1)))


@pytest.mark.parametrize(
    "changes", [{}, {"privacy.epsilon": 4.0}, SHUFFLE, CENTRAL], ids=["local-1", "local-4", "shuffle", "central"]
)
def test_no_arm_is_dropped_where_it_is_best(changes):
    """80,000 people, failure .05; 10 runs. Were the chance .05, more than 5 would fail with chance 3e-6.

    Arms are dropped in every run, so that the promise is not kept by doing nothing.
    """
    outcomes = [outcome(proved_spec(**changes), steep_means, seed) for seed in range(10)]
    assert sum(wrong for wrong, _ in outcomes) <= 5
    assert min(dropped for _, dropped in outcomes) > 0


def test_dropping_too_boldly_is_caught(monkeypatch):
    """Planted: bounds of next to no width, and a bias of bins that is next to none."""
    honest, bias = proved.martingale_upper_bound, ProvedLearner._bias_bounds
    monkeypatch.setattr(proved, "martingale_upper_bound", lambda *arguments: 0.05 * honest(*arguments))
    monkeypatch.setattr(ProvedLearner, "_bias_bounds", lambda *arguments: 0.05 * bias(*arguments))
    failures = sum(outcome(proved_spec(), steep_means, seed)[0] for seed in range(10))
    assert failures > 5


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [{}, {"privacy.epsilon": 8.0}, CENTRAL], ids=["local-1", "local-8", "central"])
def test_the_promise_holds_at_length_on_uneven_people(changes):
    """Density up to 8 (declared), 400,000 people, 60 runs at failure .05: at most 13 may fail (chance 2e-6 at .05)."""
    spec = proved_spec(**{"algorithm.density_bound": 8.0, "experiment.horizon": 400_000, **changes})
    assert sum(outcome(spec, steep_means, seed, crowded_contexts)[0] for seed in range(60)) <= 13


@pytest.mark.nightly
def test_the_promise_where_arms_are_alike():
    """Two arms with the same mean everywhere: either dropped is a failure; 60 runs, at most 13 may fail."""

    def equal_means(contexts):
        return np.full((len(contexts), 2), 0.7)

    spec = proved_spec(**{"algorithm.lipschitz": 1e-9, "experiment.horizon": 200_000})
    assert sum(outcome(spec, equal_means, seed)[1] > 0 for seed in range(60)) <= 13


LENGTH, WALKS = 4000, 2000


def draw_walks(probability):
    """Sums of steps of variance 1: a step is not 0 with this probability, and its sign is fair."""
    rng = np.random.default_rng(4)
    steps = rng.choice([-1.0, 1.0], (WALKS, LENGTH)) * (rng.random((WALKS, LENGTH)) < probability)
    return np.cumsum(steps, axis=1)


def count_crossings(probability, failure, factor=1.0):
    variance = probability * np.arange(1, LENGTH + 1)
    scale = np.full(LENGTH, 0.0 if probability == 1 else 1 / 3)
    bound = martingale_upper_bound(variance, scale, np.full(LENGTH, failure), probability * LENGTH)
    return int((draw_walks(probability) > factor * bound).any(axis=1).sum())


@pytest.mark.parametrize("probability", [1.0, 0.1, 0.01])
def test_no_more_walks_leave_than_may(probability):
    assert stats.binom.sf(count_crossings(probability, 0.2) - 1, WALKS, 0.2) > FALSE_ALARM


def test_a_bound_for_one_time_is_left_too_often():
    """Planted: the normal quantile, which holds at one time and not at all."""
    bound = stats.norm.isf(0.2) * np.sqrt(np.arange(1, LENGTH + 1))
    crossings = int((draw_walks(1.0) > bound).any(axis=1).sum())
    assert stats.binom.sf(crossings - 1, WALKS, 0.2) < FALSE_ALARM


@pytest.mark.parametrize("failure", [1e-3, 1e-5, 1e-7])
def test_the_bound_is_within_1_4_of_the_normal_quantiles_width(failure):
    """Within 1.4 of the normal quantile's width at the expected variance, and 1.6 at 16 times more or less."""
    for factor, max_ratio in ((1, 1.4), (16, 1.6), (1 / 16, 1.6)):
        width = martingale_upper_bound(np.array([1e5 * factor]), np.zeros(1), np.array([failure]), 1e5)[0]
        assert stats.norm.isf(failure) < width / np.sqrt(1e5 * factor) < max_ratio * stats.norm.isf(failure)


def test_heavy_steps_widen_the_bound():
    light, heavy, heaviest = martingale_upper_bound(
        np.full(3, 100.0), np.array([0.0, 1.0, 1e6]), np.full(3, 0.01), 100.0
    )
    assert light < heavy < heaviest
    assert np.isfinite(heaviest)
