"""Bounds at all times: how often random walks ever leave them, and how wide they are."""

import numpy as np
import pytest
from scipy import stats

from privateer_papers.paper_1.proved import martingale_upper_bound
from tests.support.statistics import FALSE_ALARM

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
