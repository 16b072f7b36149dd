"""The advantage that a certificate leaves an attacker, against closed forms and against the attack itself."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from privateer.accounting.events import Event, Gaussian, Parallel, Pure, ShuffledResponse
from privateer.certificate import FORMAT, RECORD, Certificate, Claim
from privateer.risk import Risk, risks


def risk_of(epsilon: float | None, delta: float, event: Event | None, sampling: float = 0.0) -> Risk:
    claim = Claim("somebody", epsilon, delta, event, sampling, "a proof", exact=True, about=RECORD)
    return risks(Certificate(FORMAT, "test", (claim,), ())).risks[0]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
def test_randomized_response_leaves_its_bias(epsilon: float) -> None:
    found = risk_of(epsilon, 0.0, Pure(epsilon))
    assert found.advantage == pytest.approx(math.tanh(epsilon / 2), rel=1e-6)
    assert found.guesses == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-6)
    assert found.claimed


def test_the_best_attack_on_randomized_response_achieves_just_that() -> None:
    """The attack says what the report says. 400,000 draws: 5 standard errors are .004, missed once in a million."""
    rng, epsilon, people = np.random.default_rng(1), 1.0, 400_000
    truth = rng.random(people) < 0.5
    told = np.where(rng.random(people) < 1 / (1 + math.exp(-epsilon)), truth, ~truth)
    advantage = told[truth].mean() - told[~truth].mean()
    assert advantage == pytest.approx(risk_of(epsilon, 0.0, Pure(epsilon)).advantage, abs=0.008)


def test_normal_noise_leaves_the_overlap_of_two_normals() -> None:
    found = risk_of(1.0, 1e-6, Gaussian(4.0, 1.0))
    assert found.advantage == pytest.approx(2 * norm.cdf(1 / 8) - 1, rel=1e-6)


def test_a_curve_says_more_than_epsilon_and_delta() -> None:
    by_claim = risk_of(1.0, 1e-6, None).advantage
    assert by_claim == pytest.approx((math.e - 1 + 2e-6) / (math.e + 1), rel=1e-9)
    assert risk_of(1.0, 1e-6, ShuffledResponse(2.0, 8, 10_000)).advantage < by_claim / 2


def test_a_curve_that_is_worse_than_the_claim_does_not_count() -> None:
    assert risk_of(1.0, 0.0, Pure(3.0)).advantage == pytest.approx(math.tanh(0.5), rel=1e-6)


def test_of_several_rounds_the_worst_counts() -> None:
    worst = risk_of(2.0, 0.0, Pure(2.0)).advantage
    assert risk_of(2.0, 0.0, Parallel((Pure(0.5), Pure(2.0), Pure(1.0)))).advantage == worst


def test_sampling_is_added() -> None:
    assert risk_of(4.0, 0.1, Pure(1.0), 0.01).advantage == pytest.approx(math.tanh(0.5) + 0.01, rel=1e-6)


def test_where_nothing_is_claimed_everything_may_be_guessed() -> None:
    found = risk_of(None, 1.0, None)
    assert (found.advantage, found.guesses, found.claimed) == (1.0, 1.0, False)
