"""The accountant's own functions, against 45 digits and against scipy, which has the errors that tests allow it."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats

from privateer_core.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_standard_deviation
from privateer_core.accounting.numerics import find_root
from privateer_core.accounting.special_functions import (
    binomial_pmf,
    binomial_tails,
    cap_height,
    cap_share,
    gauss_legendre_rule,
    log_binomial_pmf,
    log_normal_cdf,
    normal_quantile,
)

TRIALS = [1, 2, 7, 31, 200, 511, 512, 513, 4000, 10**5, 10**7, 10**9]
PROBABILITIES = [1e-7, 0.003, 0.2, 0.5, 0.75, 0.97]
PLACES = [-9.0, -4.0, -1.0, -0.1, 0.0, 0.1, 1.0, 4.0, 9.0, 14.0]
"""Standard deviations from the mean."""


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(45):
        yield


def numbers(trials, probability):
    deviation = math.sqrt(trials * probability * (1 - probability))
    counts = {min(trials, max(1, round(trials * probability + multiple * deviation))) for multiple in PLACES}
    return sorted(counts | {1, min(2, trials), trials}) if trials < 600 else sorted(counts)


def mass(k, trials, probability):
    p = mpmath.mpf(probability)
    choices = mpmath.loggamma(trials + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(trials - k + 1)
    return mpmath.exp(choices + k * mpmath.log(p) + (trials - k) * mpmath.log1p(-p))


def sum_odds(k, trials, odds):
    """Return the sum of probabilities from k on, relative to that of k, by recurrence; for k above the mean."""
    term = total = mpmath.mpf(1)
    for j in range(k, trials):
        term *= odds * (trials - j) / mpmath.mpf(j + 1)
        total += term
        if term < total * mpmath.mpf(10) ** -22:
            break
    return total


def tail(k, trials, probability):
    p = mpmath.mpf(probability)
    if k > trials * probability:
        return mass(k, trials, p) * sum_odds(k, trials, p / (1 - p))
    return 1 - mass(k - 1, trials, p) * sum_odds(trials - k + 1, trials, (1 - p) / p)


def relative_error(computed, true):
    return abs(float(mpmath.mpf(float(computed)) / true - 1))


@pytest.mark.parametrize(("trials", "probability"), list(product(TRIALS, PROBABILITIES)))
def test_binomial_probabilities(trials, probability):
    for k in numbers(trials, probability):
        true = mass(k, trials, probability)
        if true > 1e-290:
            assert relative_error(binomial_pmf(k, trials, probability), true) < 1e-13, k


@pytest.mark.parametrize(("trials", "probability"), list(product([n for n in TRIALS if n <= 10**5], PROBABILITIES)))
def test_binomial_tails_have_all_digits_on_both_sides(trials, probability):
    for k in numbers(trials, probability):
        above, tails = tail(k, trials, probability), binomial_tails(k, trials, probability)
        below = mass(k - 1, trials, probability) * sum_odds(
            trials - k + 1, trials, (1 - mpmath.mpf(probability)) / probability
        )
        if above > 1e-290:
            assert relative_error(tails.at_least, above) < 1e-13, k
        if below > 1e-290 and k < trials * probability:
            assert relative_error(tails.below, below) < 1e-13, k
        assert tails.below + tails.at_least == pytest.approx(1.0, abs=1e-15)
        assert tails.at == binomial_pmf(k, trials, probability)


@pytest.mark.parametrize(("trials", "place"), list(product([10**7, 10**9], [0.0, 2.0, 6.0])))
def test_fair_tails_of_many_trials(trials, place):
    """An integral of 45 digits: a sum would have too many terms."""
    k = round(trials / 2 + place * math.sqrt(trials) / 2) + 1
    slope, end = 2 * k - 1 - trials, 30 / mpmath.sqrt(trials)

    def integrand(v):
        return mpmath.exp(-slope * v) / mpmath.cosh(v) ** (trials + 1)

    true = k * mass(k, trials, 0.5) * mpmath.quad(integrand, [end * i / 6 for i in range(7)])
    assert relative_error(binomial_tails(k, trials, 0.5).at_least, true) < 1e-13


def test_binomial_tails_agree_with_scipy_on_a_wide_grid():
    rng = np.random.default_rng(1)
    n = np.floor(10 ** rng.uniform(0, 6, 20_000))
    p = np.where(rng.random(20_000) < 0.5, 0.5, 10 ** rng.uniform(-5, -0.02, 20_000))
    k = np.clip(np.round(n * p + rng.uniform(-9, 9, 20_000) * np.sqrt(n * p * (1 - p))), 0, n + 1)
    at_leasts = [binomial_tails(*arguments).at_least for arguments in zip(k[:500], n[:500], p[:500], strict=True)]
    np.testing.assert_allclose(np.array(at_leasts), stats.binom.sf(k - 1, n, p)[:500], rtol=1e-10)
    tails = binomial_tails(k, n, p)
    np.testing.assert_allclose(tails.at_least, stats.binom.sf(k - 1, n, p), rtol=1e-10)
    np.testing.assert_allclose(tails.below, stats.binom.cdf(k - 1, n, p), rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(tails.at, stats.binom.pmf(k, n, p), rtol=1e-9, atol=1e-300)


def test_outside_of_its_range_a_binomial_has_nothing():
    tails = binomial_tails([-1, 0, 4], [3, 3, 3], 0.25)
    assert tails.below.tolist() == [0.0, 0.0, 1.0]
    assert tails.at_least.tolist() == [1.0, 1.0, 0.0]
    assert tails.at == pytest.approx([0.0, 27 / 64, 0.0])


@pytest.mark.parametrize("x", [-1e4, -1000.0, -38.5, -30.0, -29.9, -8.0, -1.0, -0.99, 0.0, 1e-9, 1.0, 5.0, 9.0])
def test_logarithms_of_normal_tails(x):
    true = mpmath.log(mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2)
    # A rounded argument changes the other tail, which nobody subtracts from 1, by as much.
    assert relative_error(log_normal_cdf(x), true) < 2e-15 * max(1.0, x * x)
    assert log_normal_cdf(x) == pytest.approx(float(special.log_ndtr(x)), rel=1e-13, abs=1e-300)


def test_normal_quantiles_are_those_of_cephes():
    rng = np.random.default_rng(2)
    shares = np.concatenate([rng.random(100_000), 10 ** -rng.uniform(0, 300, 10_000), [0.5, 2.0**-54, 1 - 2.0**-53]])
    np.testing.assert_allclose(normal_quantile(shares), special.ndtri(shares), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dimension", [2, 3, 4, 5, 17, 101, 1001])
def test_caps_of_spheres(dimension):
    height = np.linspace(0.0, min(0.999, 12 / math.sqrt(dimension)), 60)
    np.testing.assert_allclose(
        cap_share(dimension, height), special.betaincc(0.5, (dimension - 1) / 2, height**2), rtol=1e-11, atol=1e-300
    )
    share = np.concatenate([np.geomspace(1e-12, 0.5, 500), np.linspace(0.5, 0.999, 100)])
    # Heights have few digits left where shares are next to 1, and scipy's have 8.
    np.testing.assert_allclose(
        cap_height(dimension, share), np.sqrt(special.betainccinv(0.5, (dimension - 1) / 2, share)), rtol=3e-8
    )
    shares = share[share > 0.01]
    np.testing.assert_allclose(cap_share(dimension, cap_height(dimension, shares)), shares, rtol=1e-8)


@pytest.mark.parametrize("nodes", [2, 24, 200])
def test_quadrature_is_that_of_legendre(nodes):
    places, weights = np.polynomial.legendre.leggauss(nodes)
    np.testing.assert_allclose(gauss_legendre_rule(nodes)[0], (1 - places[::-1]) / 2, atol=1e-15)
    np.testing.assert_allclose(gauss_legendre_rule(nodes)[1], weights[::-1] / 2, rtol=1e-10)


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (lambda x: x**3 - 2 * x - 5, 2.0, 3.0),
        (lambda x: math.exp(-x) - x, 0.0, 1.0),
        (lambda x: math.tanh(50 * (x - 0.3)), -4.0, 1.0),
    ],
)
def test_roots_are_those_of_brent(function, low, high):
    assert find_root(function, low, high, 1e-14, 1e-13) == optimize.brentq(function, low, high, xtol=1e-14, rtol=1e-13)


def test_a_function_of_one_sign_has_no_root():
    with pytest.raises(ValueError, match="one sign"):
        find_root(lambda x: x * x + 1, -1.0, 1.0)


@pytest.mark.parametrize(("deviation", "epsilon"), list(product([0.2, 0.7, 3.0, 50.0], [0.0, 0.01, 0.5, 3.0, 20.0])))
def test_delta_of_normal_noise_is_never_below_the_truth(deviation, epsilon):
    half, slope = 1 / (2 * mpmath.mpf(deviation)), mpmath.mpf(epsilon) * deviation
    true = mpmath.ncdf(half - slope) - mpmath.exp(epsilon) * mpmath.ncdf(-half - slope)
    # The accountant's curve adds one part in 10^9.
    assert gaussian_delta(epsilon, deviation) * (1 + 1e-9) >= true


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_epsilon_of_normal_noise_is_never_below_the_truth(delta):
    deviation = gaussian_standard_deviation(0.7, delta)
    for epsilon, s in ((0.7, deviation), (gaussian_epsilon(delta, 2.5), 2.5)):
        half, slope = 1 / (2 * mpmath.mpf(s)), mpmath.mpf(epsilon) * s
        assert mpmath.ncdf(half - slope) - mpmath.exp(epsilon) * mpmath.ncdf(-half - slope) <= delta


def test_a_probability_that_was_rounded_to_a_bound() -> None:
    """Without a warning, the logarithm of an impossible count is minus infinity and that of a certain count is 0."""
    k, trials = np.array([0, 1, 7, 0, 7, 0]), np.array([7, 7, 7, 7, 7, 0])
    probability = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    with np.errstate(all="raise", under="ignore"):
        assert log_binomial_pmf(k, trials, probability).tolist() == [0, -np.inf, 0, -np.inf, -np.inf, 0]
