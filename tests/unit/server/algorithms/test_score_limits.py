"""Limits of the difference of two rates agree with the test of no difference and with statsmodels."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from privateer_server.algorithms.trial.evidence.variances import (
    common_rate,
    restricted_rates,
    score_limits,
    variance_at,
)

CRITICAL = 1.959963984540054


def arms(*counts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates, people and no noise of (successes, people) of a treatment and its control."""
    return np.array([counts[0] / counts[1], counts[2] / counts[3]]), np.array(counts[1::2], float), np.zeros(2)


def test_limits_are_those_of_miettinen_and_nurminen() -> None:
    """18 of 1,129 against 0 of 1,131 by statsmodels 0.15.0, `confint_proportions_2indep(method="score")`."""
    low, high = score_limits(*arms(18, 1_129, 0, 1_131), CRITICAL)
    assert (low, high) == pytest.approx((0.01010838, 0.02506111), abs=1e-7)


@pytest.mark.parametrize("counts", [(7, 1_000, 90, 9_000), (5, 20, 10, 20), (68, 722, 2, 13), (0, 50, 0, 50)])
def test_limits_are_where_the_score_is_critical(counts: tuple[int, ...]) -> None:
    rates, people, noise = arms(*counts)
    for end in score_limits(rates, people, noise, CRITICAL):
        score = (rates[0] - rates[1] - end) / np.sqrt(variance_at(rates, people, noise, np.array(end)))
        assert abs(score) == pytest.approx(CRITICAL, rel=1e-6)


def test_all_successes_against_none_have_a_limit_at_1() -> None:
    low, high = score_limits(*arms(10, 10, 0, 12), CRITICAL)
    assert 0.6 < low < 0.8
    assert high == 1


def test_restricted_rates_maximize_the_likelihood() -> None:
    """By hand: the likelihood of the counts is largest there among rates that differ by so much."""
    rates, people, _ = arms(68, 722, 2, 13)
    for difference in (-0.2, 0.0, 0.05, 0.4):

        def unlikely(control: float, difference: float = difference) -> float:
            arm_rates = np.array([control + difference, control])
            return -float((people * (rates * np.log(arm_rates) + (1 - rates) * np.log(1 - arm_rates))).sum())

        ends = max(0.0, -difference) + 1e-9, min(1.0, 1 - difference) - 1e-9
        best = minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-10})
        assert restricted_rates(rates, people, np.array(difference))[1] == pytest.approx(best.x, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_the_interval_excludes_0_exactly_where_the_test_rejects(noise: float) -> None:
    rng = np.random.default_rng(5)
    people = rng.integers(10, 3_000, (4_000, 2)).astype(float)
    rates = rng.binomial(people.astype(int), rng.uniform(0.002, 0.6, (4_000, 2))) / people
    rates += rng.normal(0, np.sqrt(noise), rates.shape) / people
    added = noise / np.square(people)
    low, high = score_limits(rates, people, added, CRITICAL)
    common = common_rate(rates, people, added)[:, None]
    variance = (common * (1 - common) / people + added * (common**2 + (1 - common) ** 2)).sum(axis=1)
    score = (rates[:, 0] - rates[:, 1]) / np.sqrt(np.where(variance > 0, variance, 1.0))
    clear = (np.abs(np.abs(score) - CRITICAL) > 1e-6) & (variance > 0)
    assert 500 < (np.abs(score) > CRITICAL).sum() < 3_500
    assert (((low > 0) | (high < 0)) == (np.abs(score) > CRITICAL))[clear].all()
