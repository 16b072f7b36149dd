"""Binomial noise: the distribution of draws, exact thresholds, planted defects."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privateer_core.errors import SpecError
from privateer_core.sampling.randomness import draw_binomial
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import is_compatible


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
