"""Shares of the slots: chances to be the best, and thresholds that leave nothing to dropped arms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_server.algorithms.partition.allocation import (
    Allocation,
    best_probabilities,
    compute_slot_thresholds,
    select_best_arm,
    thompson_draw,
)
from privateer_server.algorithms.partition.bin_tree import BinTree, Space
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinProcess
from privateer_server.algorithms.partition.kernel import Kernel, usual_lengths
from tests.support.specs import SHUFFLE, make_spec


@given(st.integers(0, 2**32), st.integers(2, 16))
def test_best_probabilities_are_a_distribution_over_active_arms(seed, arms):
    rng = np.random.default_rng(seed)
    active = rng.random((5, arms)) < 0.6
    active[:, 0] = True
    mean, standard_deviation = rng.normal(0, 1, (5, arms)), 10 ** rng.uniform(-3, 1, (5, arms))
    probabilities = best_probabilities(mean, standard_deviation, active)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(5))
    assert (probabilities[~active] == 0).all()
    assert (probabilities >= 0).all()


def test_best_probabilities_match_draws():
    """Gauss-Hermite against 400,000 Thompson draws; six standard errors and .005 for the quadrature."""
    rng = np.random.default_rng(1)
    mean, standard_deviation = np.array([[0.0, 0.1, -0.2, 0.4]]), np.array([[0.3, 0.2, 0.5, 0.1]])
    draws = rng.normal(mean, standard_deviation, (400_000, 4))
    share = np.bincount(draws.argmax(axis=1), minlength=4) / 400_000
    assert best_probabilities(mean, standard_deviation, np.ones((1, 4), bool))[0] == pytest.approx(
        share, abs=0.005 + 6 * 0.0008
    )


def test_two_arms_match_the_closed_form():
    mean, standard_deviation = np.array([[0.2, 0.0]]), np.array([[0.3, 0.4]])
    expected = stats.norm.cdf(0.2 / 0.5)
    assert best_probabilities(mean, standard_deviation, np.ones((1, 2), bool))[0, 0] == pytest.approx(
        expected, abs=1e-4
    )


@given(st.integers(0, 2**32), st.integers(2, 16))
def test_thresholds_give_dropped_arms_nothing(seed, arms):
    rng = np.random.default_rng(seed)
    active = rng.random((7, arms)) < 0.5
    active[:, rng.integers(arms)] = True
    shares = active * rng.random((7, arms)) ** 4 + 1e-12 * active
    shares /= shares.sum(axis=1, keepdims=True)
    layout_shares = Layout(1, compute_slot_thresholds(shares, active)).shares
    assert (layout_shares[~active] == 0).all()
    assert layout_shares == pytest.approx(shares, abs=2 / UNIT)


def test_one_arm_rounds_have_the_average_shares_of_thompson_sampling():
    """4,000 rounds: no arm of 20 bins is off by 5 of its standard deviations (false alarm below 4e-5)."""
    rng = np.random.default_rng(5)
    mean, standard_deviation = rng.normal(0, 0.3, (20, 3)), rng.uniform(0.1, 0.5, (20, 3))
    active = np.ones((20, 3), np.bool_)
    active[::2, 1] = False
    expected = best_probabilities(mean, standard_deviation, active)
    samples = [thompson_draw(mean, standard_deviation, active, np.arange(20), seed) for seed in range(4000)]
    assert all(((shares == 0) | (shares == 1)).all() and (shares.sum(axis=1) == 1).all() for shares in samples)
    average = np.mean(samples, axis=0)
    deviation = np.sqrt(expected * (1 - expected) / len(samples))
    assert (np.abs(average - expected) <= 5 * deviation + 1e-3).all()
    assert not average[~active].any()
    # Planted: draws of half the deviations.
    timid = np.mean(
        [thompson_draw(mean, standard_deviation / 2, active, np.arange(20), seed) for seed in range(4000)], 0
    )
    assert not (np.abs(np.mean(timid, axis=0) - expected) <= 5 * deviation + 1e-3).all()


def test_equal_parts_play_the_same_arm_in_a_round():
    alike = (np.zeros((4, 3)), np.ones((4, 3)), np.ones((4, 3), np.bool_))
    arms_by_round = [thompson_draw(*alike, np.array([0, 0, 1, 1]), seed).argmax(axis=1) for seed in range(50)]
    assert all(arms[0] == arms[1] and arms[2] == arms[3] for arms in arms_by_round)
    assert any(arms[0] != arms[2] for arms in arms_by_round)
    assert len({int(arms[0]) for arms in arms_by_round}) == 3


def make_bin(depth, people=1.0, selected=False, variance=0.01):
    """The rule under shuffle, a bin of so many halvings of two numbers, and how it is treated."""
    spec, none = make_spec(SHUFFLE), np.zeros(0, np.int64)
    tree = BinTree(np.tile([0, 1], 20)[:depth], np.array([depth]), np.zeros(1, np.int64), none, none)
    space, kernel = Space(spec.blocks), Kernel(np.array([11, 11]), 0)
    process = BinProcess(tree, BinEvidence.empty(1, 3), np.array([people]), kernel, space, np.arange(2), spec.dimension)
    allocation = Allocation(spec, by_levels=False)
    kinds = allocation.classify_bins(process, np.ones((1, 3), np.bool_), np.full((1, 3), variance), selected=selected)
    return allocation, process, kinds


@pytest.mark.parametrize(
    ("bins", "kinds"),
    [
        (make_bin(0), (True, False, False)),
        (make_bin(8), (False, False, True)),
        (make_bin(8, variance=5.0), (False, False, False)),
        (make_bin(8, 0.5, selected=True), (True, True, False)),
        (make_bin(8, 0.01, selected=True), (False, False, True)),
    ],
    ids=["wide", "narrow", "unknown", "large", "small"],
)
def test_bins_are_treated_by_their_width_people_and_knowledge(bins, kinds):
    classified = bins[2]
    assert (bool(classified.wide[0]), bool(classified.large[0]), bool(classified.one_arm[0])) == kinds


def test_an_arm_is_dropped_when_it_is_behind_by_more_deviations_than_the_bin_asks_for():
    """Deviations of a difference: 1.8 where arms share a bin, 2.2 where rounds play one, 3 in large bins."""
    for bins, limit in ((make_bin(8, variance=5.0), 1.8), (make_bin(8), 2.2), (make_bin(8, 0.5, selected=True), 3.0)):
        allocation, process, kinds = bins
        usual = Kernel(usual_lengths(process.space.parts), 2, process.space).within_bin_variances(*process.box)
        within = max(process.kernel.within_bin_variances(*process.box)[0], usual[0] if kinds.wide[0] else 0.0)
        deviation = np.sqrt(2 * (0.01 + within))
        for times, stays in ((0.99, True), (1.01, False)):
            mean = np.array([[0.0, -times * limit * deviation, 0.0]])
            posterior = (np.ones((1, 3), np.bool_), mean, np.full((1, 3), 0.01))
            assert allocation.surviving_arms(process, kinds, *posterior)[0, 1] == stays


def test_less_is_explored_when_few_people_are_left_and_in_narrow_bins():
    (allocation, _, wide), (_, _, narrow) = make_bin(0), make_bin(8)
    assert (
        allocation.exploration_factors(wide, 0, np.inf, 0.5)
        > allocation.exploration_factors(narrow, 0, np.inf, 0.5)
        > 0.3
    )
    assert allocation.exploration_factors(wide, 19_999, np.inf, 0.5) == pytest.approx(0.05)


def test_more_is_explored_where_events_are_rare():
    """Draws have the whole standard deviation below rates of .02, in wide bins and in narrow ones."""
    for allocation, _, kinds in (make_bin(0), make_bin(8)):
        usual, rare = (allocation.exploration_factors(kinds, 0, np.inf, rarity)[0] for rarity in (0.03, 0.01))
        assert usual < rare == 1.0


def test_the_single_arm_is_the_best_of_the_preferred_arms():
    mean, all_ = np.array([[0.9, 0.5, 0.1]]), np.ones((1, 3), np.bool_)
    assert select_best_arm(all_, np.array([False, True, True]), mean).tolist() == [[False, True, False]]
    assert select_best_arm(all_, np.zeros(3, np.bool_), mean).tolist() == [[True, False, False]]
