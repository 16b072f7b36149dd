"""Feature selection: rounds on a single feature find the features that matter, and the tree halves along them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.partition.bin_tree import Space, level_membership
from privateer_server.algorithms.partition.feature_selection import (
    FeatureSelector,
    build_feature_cells,
    min_participants_asked,
)
from privateer_server.algorithms.partition.kernel import UNSCALED
from privateer_server.algorithms.partition.learner import PartitionLearner
from tests.support.partitions import same
from tests.support.people import rounds
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import FALSE_ALARM

LOCAL = {"privacy.epsilon": 4.0, "experiment.round_size": 200}
BATCHED = {**SHUFFLE, "experiment.round_size": 1000, "experiment.horizon": 80_000}
MANY = {
    "age": {"low": 0.0, "high": 99.0},
    "hours": {"low": 0.0, "high": 80.0, "missing": True},
    "rank": {"levels": ["low", "middle", "high"], "ordered": True},
    "country": {"levels": ["NL", "BE", "DE", "FR", "LU", "AT"]},
    "town": {"levels": [f"town-{place}" for place in range(100)]},
    "premium": {"boolean": True},
    "known": {"boolean": True, "missing": True},
}


def reward_by_two(contexts):
    """The second and the fifth of six features matter."""
    second, fifth = contexts[:, 1] > 0.5, contexts[:, 4] > 0.5
    return np.stack([0.2 + 0.6 * second, 0.8 - 0.6 * fifth, 0.5 + 0 * second], axis=1)


def six_spec(changes=None):
    return make_spec({**LOCAL, **(changes or {})}, dimension=6)


def run_selection(spec, seed=0):
    """The rounds up to the one that ends the screening."""
    played = []
    for result in rounds(spec, reward_by_two, seed):
        played.append(result)
        if not result.state.selection.open:
            return played
    raise AssertionError("the screening does not end")


def test_feature_cells_are_levels_or_quarters_of_a_number():
    spec = make_spec({"context.features": MANY})
    slabs = {slab.name: slab for slab in build_feature_cells(spec)}
    sizes = {name: len(slab) for name, slab in slabs.items()}
    assert sizes == {"age": 4, "hours": 5, "rank": 4, "country": 7, "town": 16, "premium": 2, "known": 3}
    for slab in slabs.values():
        assert slab.expected.sum() == pytest.approx(1)
    assert slabs["hours"].expected[-1] == 0.5
    part = Space(spec.blocks).parts[slabs["country"].blocks[0]]
    membership = level_membership(part, slabs["country"].lower, slabs["country"].upper)
    assert (membership.sum(axis=0) == 1).all()
    assert (membership.sum(axis=1) == 1).all()


def test_every_feature_is_asked_about_in_turn_by_policies_that_devices_accept():
    spec = make_spec({**LOCAL, "context.features": MANY})
    slabs = build_feature_cells(spec)
    for round_index, result in enumerate(rounds(spec)):
        lower, upper = result.policy.edges()
        assert same(result.policy.depths, slabs[round_index % len(slabs)].depths)
        assert same(lower, slabs[round_index % len(slabs)].lower)
        assert same(upper, slabs[round_index % len(slabs)].upper)
        assert result.policy.active.all()
        if round_index == 8:
            return


@pytest.mark.parametrize(("features", "asks"), [(1, False), (5, False), (6, True), (20, True)])
def test_selection_needs_six_features(features, asks):
    screening = learner_for(make_spec(LOCAL, dimension=features)).start(0).selection
    assert (screening is not None) is asks


def test_there_is_no_selection_where_it_needs_too_many_participants():
    """Eight rounds of 1,000 are more than half of 12,000 participants; some promises are too strict for a feature."""
    assert learner_for(make_spec({**SHUFFLE, "experiment.horizon": 12_000}, dimension=8)).start(0).selection is None
    assert learner_for(make_spec({**SHUFFLE, "experiment.horizon": 16_000}, dimension=8)).start(0).selection is not None
    strict = {"privacy.epsilon": 0.2, "experiment.horizon": 16_000}
    assert learner_for(make_spec(strict, dimension=8)).start(0).selection is None


@pytest.mark.parametrize(("people", "sample"), [(10_000, 1000), (80_000, 8000), (200_000, 11_157), (1_000_000, 20_015)])
def test_the_selection_asks_a_tenth_of_the_participants_or_fewer(people, sample):
    assert min_participants_asked(people) == pytest.approx(sample, rel=1e-3)


@pytest.mark.parametrize("changes", [{"experiment.horizon": 40_000}, BATCHED], ids=["local", "shuffle"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_that_matter_are_kept(changes, seed):
    spec = six_spec(changes)
    played = run_selection(spec, seed)
    screening = played[-1].state.selection
    assert set(np.flatnonzero(screening.kept)) >= {1, 4}
    assert screening.gains[[1, 4]].min() > screening.gains[[0, 2, 3, 5]].max()
    n_reports = sum(result.release.reports for result in played)
    assert min_participants_asked(spec.experiment.horizon) <= n_reports == screening.asked.sum()


def test_evidence_of_another_feature_selects_the_wrong_features():
    """Planted: what was said of a feature is taken for another's, and the wrong features are kept."""
    spec = six_spec()
    screening = run_selection(spec)[-1].state.selection
    moved = replace(
        screening,
        open=True,
        evidence=replace(
            screening.evidence,
            precision=np.roll(screening.evidence.precision, 4, axis=0),
            moment=np.roll(screening.evidence.moment, 4, axis=0),
        ),
    )
    selection = FeatureSelector(spec).end_if_enough_asked(moved, 1, UNSCALED, 2000)
    assert not selection.kept[[1, 4]].any()
    assert selection.kept[[2, 5]].all()


def standardize_errors(spec, seeds):
    """Errors of what was said of slabs, in standard deviations, (seeds, slabs, arms)."""
    slabs = build_feature_cells(spec)
    middles = np.concatenate([(slab.lower + slab.upper) / 2 for slab in slabs])
    axes = np.repeat(np.arange(6), 4)
    # A slab's average of a sum of steps: halves of other features are alike.
    likely = np.stack([np.where(axes == axis, middles[:, axis] > 0.5, 0.5) for axis in (1, 4)])
    truth = 2 * np.stack([0.2 + 0.6 * likely[0], 0.8 - 0.6 * likely[1], np.full(24, 0.5)], axis=1) - 1
    errors = []
    for seed in range(seeds):
        evidence = run_selection(spec, seed)[-1].state.selection.evidence
        errors.append((evidence.moment / evidence.precision - truth) * np.sqrt(evidence.precision))
    return np.array(errors)


@pytest.mark.nightly
def test_evidence_on_feature_cells_is_calibrated_and_doubled_precision_is_caught():
    """The spread of errors, chi-square at the stated false-alarm rate; shares of people are learned: 15 %."""
    errors = standardize_errors(six_spec(), 12)
    low, high = (tail(FALSE_ALARM, errors.size) / errors.size for tail in (stats.chi2.ppf, stats.chi2.isf))
    assert 0.85 * low < (errors**2).mean() < 1.15 * high
    assert (2 * errors**2).mean() > 1.15 * high


def test_the_tree_halves_selected_features_alone():
    *_, last = rounds(six_spec(), reward_by_two, 0)
    assert set(last.state.tree.axes) <= set(np.flatnonzero(last.state.selection.kept))
    assert set(last.state.tree.axes) >= {1, 4}


def test_the_tree_starts_from_the_evidence_of_the_selection():
    """Before anybody was asked about its bins they know which arms are good where."""
    state = run_selection(six_spec())[-1].state
    assert len(state.tree) >= 4
    assert not state.evidence.precision.any()
    policy = learner_for(six_spec()).policy(state, NewRound(9, 0, 0))
    corner = np.full((1, 6), 0.25)
    corner[0, [1, 4]] = 0.75
    assert reward_by_two(corner).argmax() == policy.decide(corner, np.zeros(1, np.uint32)).arms[0]


@pytest.mark.parametrize("place", [3, -1])
def test_an_added_arm_is_played_and_a_retired_arm_is_not(place):
    before = six_spec()
    state = run_selection(before)[place].state
    after = six_spec({"experiment.arms": ["arm-0", "arm-1", "arm-2", "new"], "experiment.retired_arms": ["arm-1"]})
    changed = learner_for(after).apply_spec_change(state, before)
    policy = learner_for(after).policy(changed, NewRound(9, 1, 200))
    policy.check(after)
    assert policy.active[:, 3].all()
    assert not policy.active[:, 1].any()
    assert same(changed.selection.evidence.precision[:, :3], state.selection.evidence.precision)
    assert not changed.selection.evidence.precision[:, 3].any()


def test_a_warm_start_keeps_the_selected_features():
    spec = six_spec()
    state = run_selection(spec)[-1].state
    start = learner_for(spec).start_from_state(state, spec)
    assert start.n_own_reports == 0
    assert not start.selection.open
    assert same(start.selection.kept, state.selection.kept)
    assert np.allclose(start.posterior.mean, state.posterior.mean)


def test_evidence_of_the_selection_fades_with_the_half_life():
    spec = six_spec({"algorithm.half_life": 2000})
    learner, state = PartitionLearner(spec), run_selection(spec)[-1].state
    information = learner.build_process(state).other_observations.information
    later = replace(state, n_own_reports=state.n_own_reports + 2000)
    assert learner.build_process(later).other_observations.information == pytest.approx(information / 2)
    start = learner.start_from_state(later, spec)
    assert learner.build_process(start).other_observations.information == pytest.approx(information / 2)


def test_selection_may_run_on_a_source():
    """Its people come first, and its shares of people in slabs are its own."""
    source = {"name": "past", "participants": 4000, "epsilon": 4.0, "shares": [0.4, 0.3, 0.3]}
    spec = six_spec({"sources": [source]})
    learner, state = PartitionLearner(spec), PartitionLearner(spec).start(0)
    policy = learner.open_next_round(state, 1, 0).policy
    policy.check(spec)
    assert policy.cohort == "past"
    assert state.selection.population.shares.shape == (2, 24)
    assert learner.select_cohorts(state, [0]).selection.population.shares.shape == (1, 24)


def test_discarded_features_are_one_observation_of_all_participants():
    state = run_selection(six_spec())[-1].state
    selection = replace(state.selection, kept=np.arange(6) == 1)
    evidence = FeatureSelector(six_spec()).build_observations(selection, np.array([1]), UNSCALED, 0, math.inf)
    assert evidence.lower.tolist() == [[0.0], [0.25], [0.5], [0.75], [0.0]]
    assert evidence.upper[-1] == 1
    others = np.delete(state.selection.evidence.precision, np.arange(4, 8), axis=0)
    assert evidence.information[:, 4, 4] == pytest.approx(others.sum(axis=0))


def test_all_features_are_selected_where_none_is_clear():
    """And the best arm is played everywhere in the end."""
    spec = six_spec()
    *_, last = rounds(spec, lambda contexts: np.tile([0.2, 0.8, 0.5], (len(contexts), 1)), 1)
    assert last.state.selection.asked.sum() == 2000
    assert last.state.selection.kept.all()
    final = PartitionLearner(spec).policy(last.state, NewRound(99, 0, 0))
    assert (final.active.argmax(axis=1) == 1).all()
