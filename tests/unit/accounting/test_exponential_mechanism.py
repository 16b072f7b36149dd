"""The curve of a private choice: against exponential mechanisms, and composed against an established accountant."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Choice, Gaussian, Repeated, Sequential, read_event
from privateer_core.errors import SpecError
from privateer_core.mechanisms.screened_moments import SENSITIVITY, block_noise

STEP = 2e-4
WIDTH = 0.24
SIGMA = 11.0


def pair(width: float, top: float) -> pld.PrivacyLossDistribution:
    """Two outcomes, with the losses ``top`` and ``top - width``."""
    p = (math.exp(width) - math.exp(top)) / math.expm1(width)
    upper = {0: math.log(p), 1: math.log1p(-p)}
    lower = {0: upper[0] - top, 1: upper[1] + width - top}
    return pld.from_two_probability_mass_functions(lower, upper, value_discretization_interval=STEP)


def compose_pairs(width: float, count: int) -> list[pld.PrivacyLossDistribution]:
    noise = pld.from_gaussian_mechanism(SIGMA, sensitivity=SENSITIVITY, value_discretization_interval=STEP)
    return [pair(width, share * width).self_compose(count).compose(noise) for share in (0.3, 0.5, 0.7)]


def test_one_choice_is_as_bad_as_the_worst_pair() -> None:
    for epsilon in (0.0, 0.05, 0.1, 0.2):
        worst = max(pair(WIDTH, share * WIDTH).get_delta_for_epsilon(epsilon) for share in np.linspace(0.01, 0.99, 99))
        assert account(Choice(WIDTH)).delta(epsilon) == pytest.approx(worst, rel=2e-2, abs=1e-5)
    assert account(Choice(WIDTH)).delta(WIDTH) == 0.0


@pytest.mark.parametrize("count", [1, 3, 6])
def test_choices_beside_normal_noise_cost_no_less_than_any_pair(count: int) -> None:
    """Planted: choices accounted for at 60 % of their range."""

    def curve(width: float):
        return account(Sequential((Repeated(Choice(width), count), Gaussian(SIGMA, SENSITIVITY))))

    oracles = compose_pairs(WIDTH, count)
    for epsilon in (0.5, 1.0):
        worst = max(oracle.get_delta_for_epsilon(epsilon) for oracle in oracles)
        assert worst <= curve(WIDTH).delta(epsilon) * 1.01
        assert worst > curve(0.6 * WIDTH).delta(epsilon)


def test_choices_cost_less_than_pure_ones_would() -> None:
    """Each choice costs width^2 / 8 by concentrated privacy, width^2 / 6 by the worst pair, and / 2 by pure privacy."""
    delta = account(Repeated(Choice(0.1), 100)).delta(1.5)
    concentrated = math.exp(-((1.5 - 100 * 0.01 / 6) ** 2) / (4 * 100 * 0.01 / 6))
    assert delta <= concentrated


def test_an_exponential_mechanism_keeps_to_the_curve_and_comes_close() -> None:
    rng, closest = np.random.default_rng(1), 0.0
    for size in (2, 5, 40):
        for _ in range(40):
            scores = rng.normal(size=size) * 3 * WIDTH
            moved = scores + rng.choice([-1.0, 1.0], size) * WIDTH / 2
            left, right = (np.exp(utilities) / np.exp(utilities).sum() for utilities in (scores, moved))
            for epsilon in (0.0, 0.1):
                delta = float(np.maximum(left - math.exp(epsilon) * right, 0).sum())
                closest = max(closest, delta / account(Choice(WIDTH)).delta(epsilon))
    assert 0.95 < closest <= 1


@pytest.mark.parametrize("screened", [0, 1, 3])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 8.0])
def test_noise_of_a_block_keeps_the_promise_tightly(epsilon: float, screened: int) -> None:
    choice, deviation = block_noise(epsilon, 1e-6, screened)
    choices = (Repeated(Choice(choice), screened),) if screened else ()

    def delta(sigma: float) -> float:
        return account(Sequential((*choices, Gaussian(sigma, SENSITIVITY)))).delta(epsilon)

    assert 0.95e-6 < delta(deviation) <= 1e-6 * (1 + 1e-9)
    assert delta(0.99 * deviation) > 1e-6


def test_a_choice_reads_from_json_and_is_in_range() -> None:
    assert read_event({"event": "choice", "epsilon": 0.5}) == Choice(0.5)
    with pytest.raises(SpecError):
        read_event({"event": "choice", "epsilon": 65.0})
