"""Discrete noise: Laplace, binomial, and the exponential mechanism."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privateer_core.errors import SpecError
from privateer_core.sampling.laplace import DiscreteLaplace, draw_choice, draw_uniform_integers, simulate_choice
from privateer_core.sampling.randomness import draw_binomial
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


def test_a_fractional_scale_is_rounded_up():
    assert DiscreteLaplace.from_min_scale(2.1) == DiscreteLaplace(3)


@pytest.mark.parametrize(("trials", "probability"), [(1, 0.5), (7, 0.5), (64, 0.5), (130, 0.5), (1, 0.2), (9, 0.013)])
def test_binomials_have_their_law(trials, probability):
    binomial = draw_binomial(200_000, trials, probability, SeededNoise(6))
    assert is_compatible(
        np.bincount(binomial, minlength=trials + 1),
        200_000 * stats.binom.pmf(np.arange(trials + 1), trials, probability),
    )


@pytest.mark.parametrize(("trials", "probability"), [(129, 0.5), (9, 0.2)])
def test_a_bit_less_is_caught(trials, probability):
    """Planted: a trial fewer than claimed."""
    binomial = draw_binomial(200_000, trials - 1, probability, SeededNoise(6))
    expected = 200_000 * stats.binom.pmf(np.arange(trials + 1), trials, probability)
    assert not is_compatible(np.bincount(binomial, minlength=trials + 1), expected)


class Word:
    """A source of noise that repeats a word."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count):
        return np.full(count, self.word, np.uint64)


@pytest.mark.parametrize("probability", [0.2, 0.4999, 2.0**-11, 1e-9, 1e-15])
def test_the_chance_of_a_bit_is_the_claimed_one_rounded_up(probability):
    threshold = math.ceil(Fraction(probability) * 2**64)
    assert draw_binomial(1, 1, probability, Word(threshold - 1))[0] == 1
    assert draw_binomial(1, 1, probability, Word(threshold))[0] == 0
    assert (Fraction(threshold, 2**64) == Fraction(probability)) == (probability >= 2.0**-11)


def test_no_trials_are_no_noise():
    assert draw_binomial(3, 0, 0.5, SeededNoise(1)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("probability", [0.0, 0.51, -0.1, math.nan])
def test_a_chance_out_of_range_is_refused(probability):
    with pytest.raises(SpecError) as refused:
        draw_binomial(1, 1, probability, SeededNoise(1))
    assert refused.value.field == "probability"


SCORES = np.array([0, 900, 2500, -70_000, 2400], np.int64)
SCALE = 1000
EXPONENTIAL_DRAWS = 2000


def exponential_expected_counts(scale: float) -> np.ndarray:
    weights = np.exp((SCORES - SCORES.max()) / scale)
    return EXPONENTIAL_DRAWS * weights / weights.sum()


def counts(draws: list[int]) -> np.ndarray:
    return np.bincount(draws, minlength=len(SCORES))


@pytest.mark.parametrize("kind", ["exact", "simulated"])
def test_choices_have_their_probabilities(kind: str) -> None:
    """Planted: a scale two fifths larger."""
    noise, rng = SeededNoise(3), np.random.default_rng(3)
    if kind == "exact":
        choice_counts = counts([draw_choice(SCORES, SCALE, noise) for _ in range(EXPONENTIAL_DRAWS)])
    else:
        choice_counts = counts([simulate_choice(SCORES, SCALE, rng) for _ in range(EXPONENTIAL_DRAWS)])
    assert is_compatible(choice_counts, exponential_expected_counts(SCALE))
    assert not is_compatible(choice_counts, exponential_expected_counts(1.4 * SCALE))


def test_an_index_with_a_much_higher_score_is_chosen_among_thousands() -> None:
    scores = np.zeros(5000, np.int64)
    scores[1234] = 10**9
    assert draw_choice(scores, SCALE, SeededNoise(1)) == 1234
    assert draw_choice(np.array([5], np.int64), 1, SeededNoise(1)) == 0
