"""The kernel: averages of the covariance over bins against numerical integration, and variances that follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privateer_server.algorithms.partition.kernel import LENGTHS, SPREADS, Kernel, interval_covariance


def covariance(t, rate):
    return (1 + rate * t) * np.exp(-rate * t)


@given(st.integers(0, 2**32), st.sampled_from(LENGTHS.tolist()))
@settings(max_examples=30)
def test_overlap_is_the_average_over_both_intervals(seed, length):
    """Against 400 midpoints a side; the kink of the covariance is in its third derivative."""
    rng = np.random.default_rng(seed)
    lower = rng.random(3)
    upper = lower + 10 ** rng.uniform(-5, 0, 3)
    rate = np.sqrt(3) / length
    share = (np.arange(400) + 0.5) / 400
    places = lower[:, None] + (upper - lower)[:, None] * share
    gaps = np.abs(places[:, None, :, None] - places[None, :, None, :])
    assert interval_covariance(lower, upper, rate) == pytest.approx(covariance(gaps, rate).mean(axis=(2, 3)), abs=2e-4)


@pytest.mark.parametrize("width", [2.0**-k for k in (1, 6, 9, 10, 11, 14, 20, 30, 40)])
def test_narrow_intervals_count_as_points(width):
    lower = np.array([0.0, width, 0.5, 1 - width])
    overlaps = interval_covariance(lower, lower + width, 10.0)
    middle = lower + width / 2
    expected = covariance(np.abs(middle[:, None] - middle[None, :]), 10.0)
    assert overlaps == pytest.approx(expected, abs=20 * width**2 + 1e-8)


def boxes(rng, count, dimension):
    lower = rng.random((count, dimension)) * 0.5
    return lower, lower + rng.choice([0.5, 0.25, 0.125], (count, dimension))


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_covariances_are_positive_definite(seed, dimension):
    rng = np.random.default_rng(seed)
    smoothness = Kernel(rng.integers(0, len(LENGTHS), dimension), int(rng.integers(len(SPREADS))))
    covariance = smoothness.covariance(*boxes(rng, 30, dimension))
    assert covariance == pytest.approx(covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > 0


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_variances_within_bins_follow_from_the_covariance(seed, dimension):
    """A bin's halves: half their difference; and a place's value less the average, from a grid of small boxes."""
    rng = np.random.default_rng(seed)
    smoothness = Kernel(rng.integers(3, len(LENGTHS), dimension), int(rng.integers(len(SPREADS))))
    lower, upper = boxes(rng, 1, dimension)
    for j in range(dimension):
        middle = (lower[0, j] + upper[0, j]) / 2
        cut = np.repeat(lower, 2, axis=0), np.repeat(upper, 2, axis=0)
        cut[1][0, j] = cut[0][1, j] = middle
        halves = smoothness.covariance(*cut)
        expected = (halves[0, 0] + halves[1, 1] - 2 * halves[0, 1]) / 4
        assert smoothness.half_difference_variances(lower, upper)[0, j] == pytest.approx(expected, abs=2e-6)
    whole = smoothness.covariance(lower, upper)[0, 0]
    point = smoothness.covariance(lower, lower + 1e-9)[0, 0]
    assert smoothness.within_bin_variances(lower, upper)[0] == pytest.approx(point - whole, abs=2e-6)


def test_a_long_length_scale_makes_bins_correlated():
    lower = np.array([[0.0, 0.0], [0.0, 0.5]])
    covariance = Kernel(np.array([3, len(LENGTHS) - 1]), 1).covariance(lower, lower + 0.5)
    assert covariance[0, 1] / covariance[0, 0] > 0.99
    other = Kernel(np.array([3, 3]), 1).covariance(lower, lower + 0.5)
    assert other[0, 1] / other[0, 0] < 0.8
