"""Exact discrete Laplace noise: its distribution by chi-square, and planted scales that are caught."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.sampling.laplace import DiscreteLaplace, draw_uniform_integers
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import centred, is_compatible, same_law

DRAWS = 200_000


def expected_counts(scale: float, edges: np.ndarray) -> np.ndarray:
    """Return the expected counts of each edge, and of the numbers beyond the edges."""
    weights = np.exp(-np.abs(edges) / scale)
    total = (1 + np.exp(-1 / scale)) / (1 - np.exp(-1 / scale))
    inside = weights / total
    return DRAWS * np.append(inside, 1 - inside.sum())


@pytest.mark.parametrize("scale", [1, 2, 7])
def test_the_distribution_is_discrete_laplace(scale):
    """Planted: a scale a twentieth larger."""
    samples = DiscreteLaplace(scale).draw(DRAWS, SeededNoise(scale))
    edges = np.arange(-5 * scale, 5 * scale + 1)
    counts = np.append([(samples == k).sum() for k in edges], (np.abs(samples) > 5 * scale).sum())
    assert is_compatible(counts, expected_counts(scale, edges))
    assert not is_compatible(counts, expected_counts(1.05 * scale, edges))


@pytest.mark.parametrize("scale", [4096, 1 << 20])
def test_wide_noise_has_the_distribution_in_bins(scale):
    """Planted: a scale a twentieth larger."""
    width = scale // 8
    counts = np.bincount(np.minimum(np.abs(DiscreteLaplace(scale).draw(DRAWS, SeededNoise(2))) // width, 59))

    def in_bins(claimed: float) -> np.ndarray:
        ratio = np.exp(-1 / claimed)
        beyond = 2 * ratio ** (width * np.arange(60.0)) / (1 + ratio)
        beyond[0] = 1.0
        return -DRAWS * np.diff(np.append(beyond, 0.0))

    assert is_compatible(counts, in_bins(scale))
    assert not is_compatible(counts, in_bins(1.05 * scale))


@pytest.mark.parametrize("scale", [3, 1000, 1 << 30])
def test_the_simulation_has_the_same_distribution_and_the_stated_variance(scale):
    discrete_laplace = DiscreteLaplace(scale)
    exact, simulated = (
        discrete_laplace.draw(20_000, SeededNoise(1)),
        discrete_laplace.simulate(20_000, np.random.default_rng(2)),
    )
    assert same_law(exact[:, None].astype(float), simulated[:, None].astype(float))
    assert centred(exact[:, None].astype(float) ** 2, [discrete_laplace.variance])
    assert not centred(exact[:, None].astype(float) ** 2, [1.2 * discrete_laplace.variance])


@pytest.mark.parametrize("below", [1, 2, 3, 10, (1 << 63) - 25])
def test_integers_are_uniform(below):
    integers = draw_uniform_integers(60_000, below, SeededNoise(3))
    assert integers.min() >= 0
    assert integers.max() < below
    cells = np.bincount((integers // max(1, below // 10)).clip(0, 9), minlength=10)[: min(below, 10)]
    assert below > 10 or is_compatible(cells, np.full(len(cells), 60_000 / len(cells)))


def test_words_that_would_bias_the_integers_are_drawn_again():
    class Words:
        def __init__(self):
            self.remaining = iter([2**64 - 1, 5])

        def words(self, count):
            return np.array([next(self.remaining) for _ in range(count)], np.uint64)

    assert draw_uniform_integers(1, 3, Words()).tolist() == [2]


@pytest.mark.parametrize("scale", [0, -1, 2**53])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(SpecError):
        DiscreteLaplace(scale)


def test_the_next_whole_scale_is_taken():
    assert DiscreteLaplace.from_min_scale(2.1) == DiscreteLaplace(3)
