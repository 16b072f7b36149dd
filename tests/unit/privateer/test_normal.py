"""The rounded normal sampler: its law against arbitrary precision, draws against moments, a planted defect."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats

from privateer.errors import SpecError
from privateer.privacy.noise import SecureNoise
from privateer.privacy.normal import DEVIATION_MIN, TOTAL_VARIATION, RoundedNormal
from tests.support.noise import SeededNoise

mpmath.mp.dps = 40
FALSE_ALARM = 1e-6


def law(sampler: RoundedNormal, magnitude: int) -> mpmath.mpf:
    """The probability with which the sampler draws a magnitude (one sign), from its own tables."""
    thresholds = [0, *(int(t) for t in sampler._thresholds), 1 << 64]
    shares = [mpmath.mpf(b - a) / 2**64 for a, b in pairwise(thresholds)]
    width, ratios = sampler._width, sampler._weight(np.arange(len(shares) * sampler._width))
    accepted = mpmath.mpf(0)
    for i, share in enumerate(shares):
        inside = sum(mpmath.mpf(float(r)) for r in ratios[i * width : (i + 1) * width] / sampler._heads[i])
        accepted += share / width * (inside - (0.5 if i == 0 else 0))
    i = magnitude // width
    return shares[i] / width * (ratios[magnitude] / sampler._heads[i]) / 2 / accepted


@pytest.mark.parametrize("deviation", [256.0, 300.7, 1000.0])
def test_the_law_is_that_of_a_rounded_normal_variable(deviation):
    sampler = RoundedNormal(deviation)
    for magnitude in (0, 1, 2, 100, int(deviation), int(3 * deviation), int(6 * deviation)):
        upper, lower = (mpmath.mpf(magnitude) - 0.5) / deviation, (mpmath.mpf(magnitude) + 0.5) / deviation
        exact = mpmath.ncdf(-upper) - mpmath.ncdf(-lower)
        error = abs(law(sampler, magnitude) - exact)
        assert error < 2 * TOTAL_VARIATION * exact + mpmath.mpf(2) ** -62


def test_total_variation_is_below_what_is_claimed():
    """All magnitudes of the smallest deviation."""
    sampler = RoundedNormal(DEVIATION_MIN)
    magnitudes = np.arange(int(9.5 * DEVIATION_MIN))
    exact = [
        mpmath.ncdf(-(mpmath.mpf(int(m)) - 0.5) / DEVIATION_MIN)
        - mpmath.ncdf(-(mpmath.mpf(int(m)) + 0.5) / DEVIATION_MIN)
        for m in magnitudes[::16]
    ]
    errors = [abs(law(sampler, int(m)) - e) for m, e in zip(magnitudes[::16], exact, strict=True)]
    assert 16 * sum(errors) < TOTAL_VARIATION


@pytest.mark.parametrize("deviation", [256.0, 5000.0, 1e9])
def test_draws_follow_the_normal_law(deviation):
    draws = RoundedNormal(deviation).draw(200_000, SeededNoise(5)) / deviation
    assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM
    assert abs(draws.mean()) < stats.norm.isf(FALSE_ALARM) / math.sqrt(len(draws))
    low, high = stats.chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], len(draws))
    assert low < (draws**2).sum() < high
    assert stats.kstest(draws[:-1] * draws[1:], draws[:1000] * draws[1000:2000]).pvalue > FALSE_ALARM


def test_a_deviation_one_percent_short_is_caught():
    """Planted: the chi-square limit above rejects it."""
    draws = RoundedNormal(0.99 * 5000).draw(200_000, SeededNoise(5)) / 5000
    assert (draws**2).sum() < stats.chi2.ppf(FALSE_ALARM, len(draws))


def test_draws_are_fresh_and_integers():
    left, right = (RoundedNormal(1000.0).draw(50, SecureNoise()) for _ in range(2))
    assert left.dtype == np.int64
    assert (left != right).any()


@pytest.mark.parametrize("deviation", [0.0, 255.9, -300.0, math.nan, math.inf, 2.0**41])
def test_a_deviation_that_the_law_does_not_cover_is_refused(deviation):
    with pytest.raises(SpecError) as refused:
        RoundedNormal(deviation)
    assert refused.value.field == "deviation"
