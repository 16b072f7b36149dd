"""Screening: rounds about one feature at a time find those that matter, and the tree halves along them alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from privateer_core.answer.parts import FeatureSelection
from privateer_core.codec import decode, encode
from privateer_lab.answer_words import selected
from privateer_server.algorithms import NewRound, learner_for
from privateer_server.algorithms.partition.bin_tree import Space, levels_in
from privateer_server.algorithms.partition.feature_selection import FeatureSelector, cells_of, people_asked
from privateer_server.algorithms.partition.kernel import UNSCALED
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.state import PartitionState
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


def two_of_six(contexts):
    """The second and the fifth of six features matter."""
    second, fifth = contexts[:, 1] > 0.5, contexts[:, 4] > 0.5
    return np.stack([0.2 + 0.6 * second, 0.8 - 0.6 * fifth, 0.5 + 0 * second], axis=1)


def six(changes=None):
    return make_spec({**LOCAL, **(changes or {})}, dimension=6)


def screened(spec, seed=0):
    """The rounds up to the one that ends the screening."""
    played = []
    for one in rounds(spec, two_of_six, seed):
        played.append(one)
        if not one.state.selection.open:
            return played
    raise AssertionError("the screening does not end")


def test_slabs_are_the_levels_of_a_feature_or_quarters_of_its_number():
    spec = make_spec({"context.features": MANY})
    slabs = {one.name: one for one in cells_of(spec)}
    sizes = {name: len(one) for name, one in slabs.items()}
    assert sizes == {"age": 4, "hours": 5, "rank": 4, "country": 7, "town": 16, "premium": 2, "known": 3}
    for one in slabs.values():
        assert one.expected.sum() == pytest.approx(1)
    assert slabs["hours"].expected[-1] == 0.5
    part = Space(spec.blocks).parts[slabs["country"].blocks[0]]
    held = levels_in(part, slabs["country"].lower, slabs["country"].upper)
    assert (held.sum(axis=0) == 1).all()
    assert (held.sum(axis=1) == 1).all()


def test_every_feature_is_asked_about_in_turn_by_policies_that_devices_accept():
    spec = make_spec({**LOCAL, "context.features": MANY})
    slabs = cells_of(spec)
    for place, one in enumerate(rounds(spec)):
        lower, upper = one.policy.edges()
        assert same(one.policy.depths, slabs[place % len(slabs)].depths)
        assert same(lower, slabs[place % len(slabs)].lower)
        assert same(upper, slabs[place % len(slabs)].upper)
        assert one.policy.active.all()
        if place == 8:
            return


@pytest.mark.parametrize(("features", "asks"), [(1, False), (5, False), (6, True), (20, True)])
def test_few_features_are_not_screened(features, asks):
    screening = learner_for(make_spec(LOCAL, dimension=features)).start(0).selection
    assert (screening is not None) is asks


def test_nothing_is_screened_where_a_round_about_each_feature_takes_too_many_people():
    """Eight rounds of 1,000 of 12,000 people are more than half; and some promises are too strict for one feature."""
    assert learner_for(make_spec({**SHUFFLE, "experiment.horizon": 12_000}, dimension=8)).start(0).selection is None
    assert learner_for(make_spec({**SHUFFLE, "experiment.horizon": 16_000}, dimension=8)).start(0).selection is not None
    strict = {"privacy.epsilon": 0.2, "experiment.horizon": 16_000}
    assert learner_for(make_spec(strict, dimension=8)).start(0).selection is None


@pytest.mark.parametrize(("people", "asked"), [(10_000, 1000), (80_000, 8000), (200_000, 11_157), (1_000_000, 20_015)])
def test_a_tenth_is_asked_and_fewer_of_many(people, asked):
    assert people_asked(people) == pytest.approx(asked, rel=1e-3)


@pytest.mark.parametrize("changes", [{"experiment.horizon": 40_000}, BATCHED], ids=["local", "shuffle"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_that_matter_are_kept(changes, seed):
    spec = six(changes)
    played = screened(spec, seed)
    screening = played[-1].state.selection
    assert set(np.flatnonzero(screening.kept)) >= {1, 4}
    assert screening.gains[[1, 4]].min() > screening.gains[[0, 2, 3, 5]].max()
    asked = sum(one.release.reports for one in played)
    assert people_asked(spec.experiment.horizon) <= asked == screening.asked.sum()


def test_answers_counted_for_the_next_feature_are_caught():
    """Planted: what was said of a feature is taken for another's, and the wrong features are kept."""
    spec = six()
    screening = screened(spec)[-1].state.selection
    moved = replace(
        screening,
        open=True,
        evidence=replace(
            screening.evidence,
            precision=np.roll(screening.evidence.precision, 4, axis=0),
            moment=np.roll(screening.evidence.moment, 4, axis=0),
        ),
    )
    found = FeatureSelector(spec).decided(moved, 1, UNSCALED, 2000)
    assert not found.kept[[1, 4]].any()
    assert found.kept[[2, 5]].all()


def standardized(spec, seeds):
    """Errors of what was said of slabs, in standard deviations, (seeds, slabs, arms)."""
    slabs = cells_of(spec)
    middles = np.concatenate([(one.lower + one.upper) / 2 for one in slabs])
    own = np.repeat(np.arange(6), 4)
    # A slab's average of a sum of steps: halves of other features are alike.
    likely = np.stack([np.where(own == 1, middles[:, 1] > 0.5, 0.5), np.where(own == 4, middles[:, 4] > 0.5, 0.5)])
    truth = 2 * np.stack([0.2 + 0.6 * likely[0], 0.8 - 0.6 * likely[1], np.full(24, 0.5)], axis=1) - 1
    found = []
    for seed in range(seeds):
        known = screened(spec, seed)[-1].state.selection.evidence
        found.append((known.moment / known.precision - truth) * np.sqrt(known.precision))
    return np.array(found)


@pytest.mark.nightly
def test_what_is_said_of_slabs_is_calibrated_and_doubled_precision_is_caught():
    """The spread of errors, chi-square at the stated false-alarm rate; shares of people are learned: 15 %."""
    errors = standardized(six(), 12)
    low, high = (tail(FALSE_ALARM, errors.size) / errors.size for tail in (stats.chi2.ppf, stats.chi2.isf))
    assert 0.85 * low < (errors**2).mean() < 1.15 * high
    assert (2 * errors**2).mean() > 1.15 * high


def test_the_tree_halves_features_that_are_kept_alone():
    *_, last = rounds(six(), two_of_six, 0)
    assert set(last.state.tree.axes) <= set(np.flatnonzero(last.state.selection.kept))
    assert set(last.state.tree.axes) >= {1, 4}


def test_the_tree_begins_with_what_was_found():
    """Before anybody was asked about its bins they know which arms are good where."""
    state = screened(six())[-1].state
    assert len(state.tree) >= 4
    assert not state.evidence.precision.any()
    policy = learner_for(six()).policy(state, NewRound(9, 0, 0))
    corner = np.full((1, 6), 0.25)
    corner[0, [1, 4]] = 0.75
    assert two_of_six(corner).argmax() == policy.decide(corner, np.zeros(1, np.uint32)).arms[0]


@pytest.mark.parametrize("people", [3, -1])
def test_a_restart_changes_nothing(people):
    """Of a state while features are screened and after; the policies are those of the state that never was stored."""
    spec = six()
    learner, state = learner_for(spec), screened(spec)[people].state
    again = decode(encode(state), PartitionState)
    assert same(again, state)
    policies = [encode(learner.policy(one, NewRound(5, 7, 200))) for one in (state, again)]
    assert policies[0] == policies[1]


@pytest.mark.parametrize("place", [3, -1])
def test_an_arm_that_is_added_is_played_and_one_that_is_retired_is_not(place):
    before = six()
    state = screened(before)[place].state
    after = six({"experiment.arms": ["arm-0", "arm-1", "arm-2", "new"], "experiment.retired": ["arm-1"]})
    changed = learner_for(after).changed(state, before)
    policy = learner_for(after).policy(changed, NewRound(9, 1, 200))
    policy.check(after)
    assert policy.active[:, 3].all()
    assert not policy.active[:, 1].any()
    assert same(changed.selection.evidence.precision[:, :3], state.selection.evidence.precision)
    assert not changed.selection.evidence.precision[:, 3].any()


def test_a_new_experiment_begins_with_the_features_that_were_kept():
    spec = six()
    state = screened(spec)[-1].state
    begun = learner_for(spec).begun(state, spec)
    assert begun.own == 0
    assert not begun.selection.open
    assert same(begun.selection.kept, state.selection.kept)
    assert np.allclose(begun.posterior.mean, state.posterior.mean)


def test_what_was_said_fades_with_memory_from_the_end_on():
    spec = six({"algorithm.memory": 2000})
    learner, state = learner_for(spec), screened(spec)[-1].state
    whole = learner.process(state).beside.information
    assert learner.process(replace(state, own=state.own + 2000)).beside.information == pytest.approx(whole / 2)
    begun = learner.begun(replace(state, own=state.own + 2000), spec)
    assert learner.process(begun).beside.information == pytest.approx(whole / 2)


def test_memories_are_compared_after_a_screening():
    *_, last = rounds(six({"algorithm.memory": "auto", "experiment.round_size": 500}), two_of_six, 3)
    assert last.state.discounted.probabilities.sum() == pytest.approx(1)
    assert np.isfinite(last.state.posterior.mean).all()


def test_a_source_may_be_asked_about_features():
    """Its people come first, and its shares of people in slabs are its own."""
    source = {"name": "past", "people": 4000, "epsilon": 4.0, "shares": [0.4, 0.3, 0.3]}
    spec = six({"sources": [source]})
    learner, state = learner_for(spec), learner_for(spec).start(0)
    policy = learner.next(state, 1, 0).policy
    policy.check(spec)
    assert policy.cohort == "past"
    assert state.selection.population.shares.shape == (2, 24)
    assert learner.of_cohorts(state, [0]).selection.population.shares.shape == (1, 24)


def test_features_that_do_not_matter_are_one_observation_of_all_people():
    state = screened(six())[-1].state
    kept = replace(state.selection, kept=np.arange(6) == 1)
    evidence = FeatureSelector(six()).observations(kept, np.array([1]), UNSCALED, 0, math.inf)
    assert evidence.lower.tolist() == [[0.0], [0.25], [0.5], [0.75], [0.0]]
    assert evidence.upper[-1] == 1
    others = np.delete(state.selection.evidence.precision, np.arange(4, 8), axis=0)
    assert evidence.information[:, 4, 4] == pytest.approx(others.sum(axis=0))


def test_the_state_says_in_words_which_features_were_kept():
    spec = six()
    played = screened(spec)
    learner = learner_for(spec)
    still = learner.answer(played[3].state).first_of(FeatureSelection)
    assert "800 people so far" in selected(still)
    found = learner.answer(played[-1].state).first_of(FeatureSelection)
    assert {"x2", "x5"} <= set(found.kept)
    assert selected(found).startswith("2,000 people were asked about one feature at a time; kept of 6: ")
    assert set(found.gains) == {f"x{place}" for place in range(1, 7)}
    assert learner_for(make_spec()).answer(learner_for(make_spec()).start(0)).first_of(FeatureSelection) is None


def test_where_no_feature_is_clear_all_are_kept():
    """And the best arm is played everywhere in the end."""
    spec = six()
    *_, last = rounds(spec, lambda contexts: np.tile([0.2, 0.8, 0.5], (len(contexts), 1)), 1)
    assert last.state.selection.asked.sum() == 2000
    assert last.state.selection.kept.all()
    final = PartitionLearner(spec).policy(last.state, NewRound(99, 0, 0))
    assert (final.active.argmax(axis=1) == 1).all()
