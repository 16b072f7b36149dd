"""The rounded normal sampler: its law against arbitrary precision, draws against moments, a planted defect."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import SpecError
from privateer_core.sampling.normal import (
    DEVIATIONS_MAX,
    EPSILON_MAX,
    STANDARD_DEVIATION_MIN,
    RoundedNormal,
    draw_bernoulli,
    sampling_cost,
)
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.simulation.scores import SeededNoise


@pytest.fixture(autouse=True, scope="module")
def digits():
    """Of mpmath, which keeps them for the whole process."""
    with mpmath.workdps(40):
        yield


FALSE_ALARM = 1e-6


def weights(sampler: RoundedNormal, magnitudes: list[int]) -> list[mpmath.mpf]:
    """Return the unnormalized probabilities of magnitudes of a sign, from the sampler's own tables."""
    bins = [m // sampler._width for m in magnitudes]
    ratios = sampler._acceptance_probabilities(np.array(bins), np.array(magnitudes))
    return [sampler._bin_word_counts[i] * mpmath.mpf(float(ratio)) for i, ratio in zip(bins, ratios, strict=True)]


def exact(standard_deviation: float, magnitude: int) -> mpmath.mpf:
    """Return the probability of a magnitude of a given sign under the rounded normal law."""
    upper, lower = (
        (mpmath.mpf(magnitude) - 0.5) / standard_deviation,
        (mpmath.mpf(magnitude) + 0.5) / standard_deviation,
    )
    return mpmath.ncdf(-upper) - mpmath.ncdf(-lower)


def errors(sampler: RoundedNormal, magnitudes: list[int], claimed: float) -> list[float]:
    """Relative errors of chances against that of 0, for the law of the claimed deviation."""
    first, *others = weights(sampler, [0, *magnitudes])
    zero = exact(claimed, 0)
    return [
        float(abs(weight / first * zero / exact(claimed, m) - 1)) for weight, m in zip(others, magnitudes, strict=True)
    ]


def within(relative_errors: list[float], magnitudes: list[int], standard_deviation: float) -> bool:
    """Return whether relative errors are within those of `sampling_cost`."""
    return all(
        e <= (1.5 * (m / standard_deviation) ** 2 + 23.5) * 2.0**-53
        for e, m in zip(relative_errors, magnitudes, strict=True)
    )


@pytest.mark.parametrize("standard_deviation", [256.0, 300.7, 1000.0, 123_456.7, 2.0**40])
def test_the_law_is_that_of_a_rounded_normal_variable(standard_deviation):
    """Relative to the exact chances, to the last deviation that is drawn."""
    sampler = RoundedNormal(standard_deviation)
    magnitudes = [1, 2, 100, *(int(x * standard_deviation) for x in np.linspace(0.3, DEVIATIONS_MAX, 200))]
    assert within(errors(sampler, magnitudes, standard_deviation), magnitudes, standard_deviation)


def test_an_error_of_the_law_is_caught():
    """Planted: a deviation off by 1 in 10^12; a series that ends a term early."""
    magnitudes = [int(x * 256) for x in np.linspace(0.3, DEVIATIONS_MAX, 200)]
    assert not within(errors(RoundedNormal(256 * (1 + 1e-12)), magnitudes, 256.0), magnitudes, 256.0)

    class Short(RoundedNormal):
        def _density_weights(self, magnitudes):
            y = (magnitudes / self.standard_deviation) ** 2
            return np.exp(-y / 2) * (1 + (y - 1) / (24 * self.standard_deviation**2))

    assert not within(errors(Short(256.0), magnitudes, 256.0), magnitudes, 256.0)


@pytest.mark.parametrize("standard_deviation", [256.0, 511.9, 512.0, 1000.3, 2.0**40])
def test_every_word_picks_a_bin_and_every_chance_is_below_one(standard_deviation):
    sampler = RoundedNormal(standard_deviation)
    assert sum(sampler._bin_word_counts) == 1 << 64
    assert min(sampler._bin_word_counts) >= 1
    bins = np.arange(len(sampler._max_weights))
    assert (sampler._acceptance_probabilities(bins, bins * sampler._width) < 1).all()
    ends = (bins + 1) * sampler._width - 1
    assert (
        sampler._acceptance_probabilities(bins, ends)
        <= sampler._acceptance_probabilities(bins, bins * sampler._width) * (1 + 1e-15)
    ).all()
    assert DEVIATIONS_MAX * standard_deviation <= ends[-1] + 1 < 1.01 * DEVIATIONS_MAX * standard_deviation


def test_chances_below_a_word_are_met_by_the_spare_bits():
    """Expected shares of all pairs (word, spare bits) near the threshold, in exact arithmetic."""
    spare = np.arange(0, 1 << 29, 1 << 20, dtype=np.uint64)
    for probability in (1e-12, 3.7e-17, 2.0**-64 * 5.25, 2.0**-70):
        whole = math.floor(probability * 2.0**64)
        hits = [
            draw_bernoulli(np.full(512, word, np.uint64), spare, np.full(512, probability)).mean()
            for word in (whole, whole + 1)
        ]
        assert hits[0] == pytest.approx(probability * 2.0**64 - whole, abs=2 / 512)
        assert hits[1] == 0
        if whole:
            assert draw_bernoulli(np.full(1, whole - 1, np.uint64), spare[-1:], np.array([probability])).all()


def test_the_cost_of_sampling_covers_its_parts():
    """The bound that the docstring of `sampling_cost` adds up, with the widest pair that any promise allows."""
    widest = max(1 / gaussian_standard_deviation(EPSILON_MAX, delta) for delta in (0.5, 0.1, 1e-6))
    assert widest < 9.2
    for count in (1, 20, 1 << 20):
        squares = mpmath.quad(lambda z: (1.5 * z**2 + 23.5) * mpmath.npdf(z), [-12, 0, 12])
        floating = 2 * count * squares + 1.5 * widest**2
        tail = count * mpmath.exp(EPSILON_MAX) * 2 * mpmath.ncdf(1 / STANDARD_DEVIATION_MIN - DEVIATIONS_MAX) * 2**53
        assert 2 * mpmath.ncdf(1 / STANDARD_DEVIATION_MIN - DEVIATIONS_MAX) < mpmath.mpf(2) ** -95
        assert (floating + tail) * mpmath.mpf(2) ** -53 < sampling_cost(count)


@pytest.mark.parametrize("standard_deviation", [256.0, 5000.0, 1e9])
def test_draws_follow_the_normal_law(standard_deviation):
    draws = RoundedNormal(standard_deviation).draw(200_000, SeededNoise(5)) / standard_deviation
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


@pytest.mark.parametrize("standard_deviation", [0.0, 255.9, -300.0, math.nan, math.inf, 2.0**41])
def test_a_deviation_that_the_law_does_not_cover_is_refused(standard_deviation):
    with pytest.raises(SpecError) as refused:
        RoundedNormal(standard_deviation)
    assert refused.value.field == "standard_deviation"
