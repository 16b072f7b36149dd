"""The analytic Gaussian against arbitrary precision and an established accountant, and the papers' classic form."""

import math

import mpmath
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian
from privateer_core.accounting.gaussian import (
    classic_gaussian_standard_deviation,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_standard_deviation,
)
from privateer_core.errors import SpecError


@pytest.fixture(autouse=True, scope="module")
def digits():
    """Of mpmath, which keeps them for the whole process."""
    with mpmath.workdps(60):
        yield


GRID = [(e, s) for e in (0.0, 0.01, 0.5, 1.0, 5.0, 20.0) for s in (0.1, 0.3, 1.0, 4.0, 30.0, 1000.0)]


def precise_delta(epsilon: float, standard_deviation: float) -> mpmath.mpf:
    """Theorem 8 of Balle and Wang with sixty digits."""
    s, e = mpmath.mpf(standard_deviation), mpmath.mpf(epsilon)
    return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)


@pytest.mark.parametrize(("epsilon", "standard_deviation"), GRID)
def test_delta_has_its_digits_down_to_the_smallest(epsilon, standard_deviation):
    expected = precise_delta(epsilon, standard_deviation)
    if expected < mpmath.mpf("1e-280"):
        assert gaussian_delta(epsilon, standard_deviation) < 1e-279
    else:
        assert gaussian_delta(epsilon, standard_deviation) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("standard_deviation", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-9])
def test_epsilon_agrees_with_an_established_accountant(standard_deviation, delta):
    oracle = from_gaussian_mechanism(standard_deviation, value_discretization_interval=1e-4).get_epsilon_for_delta(
        delta
    )
    assert gaussian_epsilon(delta, standard_deviation) == pytest.approx(oracle, abs=2e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-12, 1e-6, 0.25, 0.5])
def test_the_deviation_is_the_smallest(epsilon, delta):
    standard_deviation = gaussian_standard_deviation(epsilon, delta)
    assert float(precise_delta(epsilon, standard_deviation)) <= delta
    assert float(precise_delta(epsilon, standard_deviation * (1 - 1e-6))) > delta * (1 - 1e-12)
    assert gaussian_standard_deviation(epsilon, delta, 7.0) == pytest.approx(7 * standard_deviation)
    assert gaussian_epsilon(delta, standard_deviation) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize(("epsilon", "delta", "true"), [(10, 0.25, 0.789), (10, 1e-6, 1.9e-6), (15, 1e-6, 2.1e-5)])
def test_the_classic_calibration_is_not_private_above_one(epsilon, delta, true):
    assert gaussian_delta(epsilon, classic_gaussian_standard_deviation(epsilon, delta)) == pytest.approx(true, rel=0.03)


def test_the_classic_calibration_is_private_below_one():
    for epsilon in (0.1, 0.5, 0.99):
        assert gaussian_delta(epsilon, classic_gaussian_standard_deviation(epsilon, 1e-5)) < 1e-5


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_numbers_out_of_range_are_refused(bad):
    for call in (gaussian_standard_deviation, classic_gaussian_standard_deviation):
        with pytest.raises(SpecError) as refused:
            call(bad, 1e-6)
        assert refused.value.field == "epsilon"
        with pytest.raises(SpecError) as refused:
            call(1.0, bad)
        assert refused.value.field == "delta"
    for arguments in ((1.0, bad), (1.0, 1.0, bad)):
        with pytest.raises(SpecError):
            gaussian_delta(*arguments)
    with pytest.raises(SpecError):
        gaussian_epsilon(bad, 1.0)


HUGE = [(0.0, 1e9), (1e-9, 1e9), (0.0, 1e12), (1e-12, 1e12), (1e-4, 1e5), (20.0, 1e9)]


@pytest.mark.parametrize(("epsilon", "standard_deviation"), HUGE)
def test_huge_noise_is_rounded_up(epsilon, standard_deviation):
    """The two tails agree in nearly all digits; cancellation must not make delta smaller."""
    assert mpmath.mpf(gaussian_delta(epsilon, standard_deviation)) >= precise_delta(epsilon, standard_deviation)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("delta", [1e-15, 1e-12, 1e-9])
def test_the_deviation_keeps_a_tiny_promise(epsilon, delta):
    assert precise_delta(epsilon, gaussian_standard_deviation(epsilon, delta)) <= mpmath.mpf(delta)


@pytest.mark.parametrize(("epsilon", "standard_deviation"), [(64.0, 10.0), (64.0, 1e12), (1.0, 1e3)])
def test_normal_noise_is_never_pure(epsilon, standard_deviation):
    assert gaussian_delta(epsilon, standard_deviation) > 0
    assert account(Gaussian(standard_deviation)).epsilon(0.0) == math.inf
