"""Shuffled bits against direct convolution, an established accountant and the anchors of the notes."""

import math

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.stats import binom

from privateer_core.accounting import binomial
from privateer_core.accounting.binomial import shuffled_bits_delta, shuffled_bits_probability, shuffled_bits_trials
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.accounting.loss import Composition, LossDistribution
from privateer_core.errors import SpecError

ANCHORS = {
    1e-6: {
        1: {0.5: 25981, 1: 7148, 5: 397, 10: 133},
        20: {0.5: 520875, 1: 143198, 5: 7705, 10: 2346},
        60: {0.5: 1566018, 1: 430429, 5: 23157, 10: 7042},
    },
    0.25: {20: {0.5: 7563, 1: 4574, 5: 1008, 10: 490}},
}
CASES = [(d, s, e, n) for d, rows in ANCHORS.items() for s, row in rows.items() for e, n in row.items()]


def direct(epsilon: float, trials: int, probability: float, levels: int, coordinates: int) -> float:
    """Return delta by enumeration of the analyzer's views; neighbours differ upwards or downwards in any coordinate."""
    masses = binom.pmf(np.arange(trials + 1), trials, probability)
    shifted, other = np.zeros(trials + levels + 1), np.zeros(trials + levels + 1)
    shifted[levels:], other[: trials + 1] = masses, masses
    e, worst = math.exp(epsilon), 0.0
    for upwards in range(coordinates + 1):
        left, right = np.ones(1), np.ones(1)
        for coordinate in range(coordinates):
            p, q = (shifted, other) if coordinate < upwards else (other, shifted)
            left, right = np.multiply.outer(left, p).ravel(), np.multiply.outer(right, q).ravel()
        worst = max(worst, float(np.maximum(left - e * right, 0).sum()))
    return worst


@pytest.mark.parametrize(("delta", "coordinates", "epsilon", "expected"), CASES)
def test_numbers_of_trials_are_those_of_the_notes(delta, coordinates, epsilon, expected):
    """Ours share losses out by convexity where the notes round them up, so ours are at most a little smaller."""
    n_trials = shuffled_bits_trials(epsilon, delta, 10, coordinates)
    assert 0.99 * expected <= n_trials <= 1.001 * expected


@pytest.mark.parametrize("coordinates", [20, 60, 500])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
def test_noise_is_within_two_percent_of_the_analytic_gaussian(epsilon, coordinates):
    trials = shuffled_bits_trials(epsilon, 1e-6, 10, coordinates)
    normal = gaussian_standard_deviation(epsilon, 1e-6, 10 * math.sqrt(coordinates))
    assert 1.0 <= math.sqrt(trials / 4) / normal < 1.02


@pytest.mark.parametrize("probability", [0.5, 0.3, 0.1])
@pytest.mark.parametrize(
    ("trials", "levels", "coordinates"), [(30, 2, 1), (60, 3, 2), (12, 1, 3), (5, 4, 2), (90, 2, 2)]
)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0])
def test_the_bound_covers_enumeration_and_is_close(epsilon, trials, levels, coordinates, probability):
    exact = direct(epsilon, trials, probability, levels, coordinates)
    bound = shuffled_bits_delta(epsilon, trials, probability, levels, coordinates)
    assert exact * (1 - 1e-9) <= bound <= (1.02 if probability == 0.5 else 1.3) * exact + 1e-9


def test_one_direction_alone_is_caught():
    """Planted: with unfair bits the direction that is forgotten may be the worse one."""
    exact = direct(2.0, 40, 0.1, 2, 2)
    weak = min(Composition(((binomial._compute_shift_loss(40, 0.1, sign * 2), 2),)).delta(2.0) for sign in (1, -1))
    assert weak < 0.9 * exact


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_composition_agrees_with_an_established_accountant_far_into_the_tail(delta):
    trials, levels, coordinates = 143_198, 10, 20
    points = np.arange(66_000, 77_200)
    masses = binom.pmf(points, trials, 0.5)
    losses = binom.logpmf(points, trials, 0.5) - binom.logpmf(points + levels, trials, 0.5)
    order = np.argsort(losses)
    loss, mass = losses[order], masses[order]
    step = 1e-3
    grid = np.arange(math.floor(loss[0] / step), math.ceil(loss[-1] / step) + 1)
    deltas = np.array([np.sum(mass * np.maximum(-np.expm1(g * step - loss), 0)) for g in grid])
    pmf = create_pmf_pessimistic_connect_dots(step, grid, deltas)
    oracle = PrivacyLossDistribution(pmf).self_compose(coordinates).get_epsilon_for_delta(delta)
    composed = shuffled_bits_delta(oracle, trials, 0.5, levels, coordinates)
    assert composed == pytest.approx(delta, rel=0.05)


def test_privacy_losses_rounded_down_are_caught():
    """Planted: a loss distribution moved down by one step claims less than enumeration shows."""
    exact = direct(1.0, 60, 0.5, 3, 2)
    honest = binomial._compute_shift_loss(60, 0.5, 3)
    wrong = LossDistribution(honest.step, honest.first - 1, honest.mass, honest.infinite)
    assert Composition(((wrong, 2),)).delta(1.0) < 0.95 * exact


def test_delta_falls_with_epsilon_and_bits():
    by_epsilon = [shuffled_bits_delta(e, 5000, 0.5, 5, 10) for e in np.linspace(0, 8, 60)]
    assert all(np.diff(by_epsilon) <= 0)
    by_trials = [shuffled_bits_delta(1.0, n, 0.5, 5, 10) for n in range(4000, 20_000, 777)]
    assert all(np.diff(by_trials) < 0)


@pytest.mark.parametrize("trials", [150_000, 300_000, 2_000_000])
def test_unfair_bits_hide_as_well(trials):
    probability = shuffled_bits_probability(1.0, 1e-6, 10, 20, trials)
    assert shuffled_bits_delta(1.0, trials, probability, 10, 20) <= 1e-6
    variance = trials * probability * (1 - probability)
    assert shuffled_bits_trials(1.0, 1e-6, 10, 20) / 4 == pytest.approx(variance, rel=0.02)


def test_too_few_bits_are_refused():
    with pytest.raises(SpecError) as refused:
        shuffled_bits_probability(1.0, 1e-6, 10, 20, 100_000)
    assert "are needed" in str(refused.value)
    assert shuffled_bits_delta(1.0, 5, 0.5, 10, 1) == 1.0


@pytest.mark.parametrize(
    "arguments",
    [(1.0, 0, 0.5, 1, 1), (1.0, 9, 0.6, 1, 1), (1.0, 9, 0.0, 1, 1), (1.0, 9, 0.5, 0, 1), (1.0, 9, 0.5, 1, 0)],
)
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(SpecError):
        shuffled_bits_delta(*arguments)
    for epsilon in (-1.0, math.nan, math.inf):
        with pytest.raises(SpecError):
            shuffled_bits_delta(epsilon, 100, 0.5, 1, 1)
    with pytest.raises(SpecError):
        shuffled_bits_trials(1.0, 0.0, 10, 20)
    with pytest.raises(SpecError):
        shuffled_bits_trials(1e-4, 1e-9, 1000, 1000)


@pytest.mark.parametrize(
    ("trials", "probability", "levels"),
    [(10**10, 1e-4, 1 << 20), (10**5, 0.01, 10**5), (10**5, 0.3, 50_000), (100, 0.5, 101)],
)
def test_noise_that_hides_nothing_says_so(trials, probability, levels):
    assert shuffled_bits_delta(1.0, trials, probability, levels, 3) == 1.0


def test_one_bit_hides_one_level_half_of_the_time():
    assert shuffled_bits_delta(1.0, 1, 0.5, 1, 1) == pytest.approx(0.5)
