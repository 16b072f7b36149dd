"""Discrete noise: thresholds against arbitrary precision, the law of draws, planted defects."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from privateer.errors import SpecError
from privateer.sampling.discrete import (
    DIGITS,
    LAPLACE_COST,
    SCALE_MAX,
    _digit_thresholds,
    binomial,
    discrete_laplace,
)
from privateer_lab.noise import SeededNoise
from tests.support.statistics import fits


@pytest.fixture(autouse=True, scope="module")
def digits():
    """Of mpmath, which keeps them for the whole process."""
    with mpmath.workdps(60):
        yield


def law(scale: float, reach: int) -> np.ndarray:
    ratio = math.exp(-1 / scale)
    inside = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))
    return np.concatenate([[(1 - inside.sum()) / 2], inside, [(1 - inside.sum()) / 2]])


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 50.0])
def test_discrete_laplace_has_its_law(scale):
    n, reach = 400_000, int(8 * scale) + 2
    drawn = np.clip(discrete_laplace(n, scale, SeededNoise(1)), -reach - 1, reach + 1)
    assert fits(np.bincount(drawn + reach + 1, minlength=2 * reach + 3), n * law(scale, reach))


@pytest.mark.parametrize("scale", [4096.0, 40_960.0])
def test_wide_noise_has_its_law_in_bins(scale):
    n, width = 400_000, int(scale) // 10
    drawn = np.abs(discrete_laplace(n, scale, SeededNoise(2)))
    ratio = math.exp(-1 / scale)
    edges = width * np.arange(100)
    beyond = 2 * ratio**edges / (1 + ratio)
    beyond[0] = 1.0
    assert fits(np.bincount(np.minimum(drawn // width, 99), minlength=100), n * -np.diff(np.append(beyond, 0.0)))


def test_a_smaller_scale_is_caught():
    """Planted: scale 3.7 where 4 is claimed."""
    n, reach = 400_000, 34
    drawn = np.clip(discrete_laplace(n, 3.7, SeededNoise(3)), -reach - 1, reach + 1)
    assert not fits(np.bincount(drawn + reach + 1, minlength=2 * reach + 3), n * law(4.0, reach))


def variation(thresholds, scale) -> mpmath.mpf:
    """Total variation of a number made of digits with these chances from the discrete Laplace law, at most."""
    exact = [1 / (1 + mpmath.exp(mpmath.mpf(2) ** i / mpmath.mpf(scale))) for i in range(DIGITS)]
    digits = sum(
        abs(mpmath.mpf(int(t)) / 2**64 - probability) for t, probability in zip(thresholds, exact, strict=True)
    )
    return 2 * (digits + mpmath.exp(-(mpmath.mpf(2) ** DIGITS) / mpmath.mpf(scale)))


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 7.5, 1024.0, 1e6, SCALE_MAX])
def test_digits_meet_their_chances_within_the_stated_cost(scale):
    assert variation(_digit_thresholds(scale), scale) <= LAPLACE_COST


def test_thresholds_from_floating_point_are_caught():
    """Planted: chances of 53 digits, which are off by a thousand times the stated cost."""
    rough = [int(2**64 / (1 + math.exp(min(700.0, 2.0**i / 1024)))) for i in range(DIGITS)]
    assert variation(rough, 1024.0) > 100 * LAPLACE_COST


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2 * SCALE_MAX])
def test_a_scale_that_the_digits_do_not_cover_is_refused(scale):
    with pytest.raises(SpecError) as refused:
        discrete_laplace(1, scale, SeededNoise(1))
    assert refused.value.field == "scale"


@pytest.mark.parametrize(("trials", "probability"), [(1, 0.5), (7, 0.5), (64, 0.5), (130, 0.5), (1, 0.2), (9, 0.013)])
def test_binomials_have_their_law(trials, probability):
    drawn = binomial(200_000, trials, probability, SeededNoise(6))
    assert fits(
        np.bincount(drawn, minlength=trials + 1), 200_000 * stats.binom.pmf(np.arange(trials + 1), trials, probability)
    )


@pytest.mark.parametrize(("trials", "probability"), [(129, 0.5), (9, 0.2)])
def test_a_bit_less_is_caught(trials, probability):
    """Planted: one trial fewer than claimed."""
    drawn = binomial(200_000, trials - 1, probability, SeededNoise(6))
    expected = 200_000 * stats.binom.pmf(np.arange(trials + 1), trials, probability)
    assert not fits(np.bincount(drawn, minlength=trials + 1), expected)


class Word:
    """One word for ever."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count):
        return np.full(count, self.word, np.uint64)


@pytest.mark.parametrize("probability", [0.2, 0.4999, 2.0**-11, 1e-9, 1e-15])
def test_the_chance_of_a_bit_is_the_claimed_one_rounded_up(probability):
    ones = math.ceil(Fraction(probability) * 2**64)
    assert binomial(1, 1, probability, Word(ones - 1))[0] == 1
    assert binomial(1, 1, probability, Word(ones))[0] == 0
    assert (Fraction(ones, 2**64) == Fraction(probability)) == (probability >= 2.0**-11)


def test_no_trials_are_no_noise():
    assert binomial(3, 0, 0.5, SeededNoise(1)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("probability", [0.0, 0.51, -0.1, math.nan])
def test_a_chance_out_of_range_is_refused(probability):
    with pytest.raises(SpecError) as refused:
        binomial(1, 1, probability, SeededNoise(1))
    assert refused.value.field == "probability"
