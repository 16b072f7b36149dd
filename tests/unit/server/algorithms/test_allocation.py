"""Shares of the slots: chances to be the best, and thresholds that leave nothing to dropped arms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privateer_core.coins import UNIT, Layout
from privateer_server.algorithms.partition.allocation import best_probabilities, thompson_draw, thresholds


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
    found = Layout(1, thresholds(shares, active)).shares
    assert (found[~active] == 0).all()
    assert found == pytest.approx(shares, abs=2 / UNIT)


def test_arms_that_take_turns_have_the_shares_of_arms_that_share():
    """4,000 rounds: no arm of 20 bins is off by 5 of its standard deviations (false alarm below 4e-5)."""
    rng = np.random.default_rng(5)
    mean, standard_deviation = rng.normal(0, 0.3, (20, 3)), rng.uniform(0.1, 0.5, (20, 3))
    active = np.ones((20, 3), np.bool_)
    active[::2, 1] = False
    wanted = best_probabilities(mean, standard_deviation, active)
    drawn = [thompson_draw(mean, standard_deviation, active, np.arange(20), seed) for seed in range(4000)]
    assert all(((shares == 0) | (shares == 1)).all() and (shares.sum(axis=1) == 1).all() for shares in drawn)
    found = np.mean(drawn, axis=0)
    deviation = np.sqrt(wanted * (1 - wanted) / len(drawn))
    assert (np.abs(found - wanted) <= 5 * deviation + 1e-3).all()
    assert not found[~active].any()
    # Planted: draws of half the deviations.
    timid = np.mean(
        [thompson_draw(mean, standard_deviation / 2, active, np.arange(20), seed) for seed in range(4000)], 0
    )
    assert not (np.abs(np.mean(timid, axis=0) - wanted) <= 5 * deviation + 1e-3).all()


def test_parts_that_are_alike_play_the_same_arm_in_a_round():
    alike = (np.zeros((4, 3)), np.ones((4, 3)), np.ones((4, 3), np.bool_))
    together = [thompson_draw(*alike, np.array([0, 0, 1, 1]), seed).argmax(axis=1) for seed in range(50)]
    assert all(arms[0] == arms[1] and arms[2] == arms[3] for arms in together)
    assert any(arms[0] != arms[2] for arms in together)
    assert len({int(arms[0]) for arms in together}) == 3
