"""Alarms about logged propensities: as rare as stated if they are right, however small; sure if they are wrong."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from tests.support.logs import Impressions, thompson

ROWS = 10_000
FALSE_ALARM = 1e-3
"""What the library states: the probability that a log of right propensities is called wrong."""
LOGS = pytest.mark.parametrize("logs", [6, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])])


def alarms(log: dict[str, Any], impressions: Impressions, **options: Any) -> list[str]:
    evaluation = lab.evaluate(log, "0", arms=impressions.items, **options)
    return [warning for warning in evaluation.warnings if "do not fit" in warning]


def draw_log(seed: int) -> tuple[Impressions, dict[str, Any]]:
    impressions = thompson(seed % 10)
    return impressions, impressions.log(ROWS, np.random.default_rng([31, seed]))


def is_called_wrong_by_a_normal_test(log: dict[str, Any], impressions: Impressions) -> bool:
    """The planted defect: the mean of 1 / p of each item within as many standard errors as the rate asks for."""
    limit = stats.norm.isf(FALSE_ALARM / 2 / len(impressions.items))
    parts = (log["arm"] == np.array(impressions.items)[:, None]) / log["p"] - 1
    return bool((np.abs(parts.mean(axis=1)) > limit * parts.std(axis=1) / ROWS**0.5).any())


@LOGS
@pytest.mark.parametrize("context", [[], ["position"]])
def test_right_propensities_of_a_policy_that_has_learned_are_not_called_wrong(logs: int, context: list[str]) -> None:
    """More alarms have a chance of 1e-4 if the rate is as stated; in six logs a normal test has more than one."""
    n_alarms, normal = 0, 0
    for seed in range(logs):
        impressions, log = draw_log(seed)
        n_alarms += bool(alarms(log, impressions, context=context))
        normal += seed < 6 and is_called_wrong_by_a_normal_test(log, impressions)
    assert n_alarms <= stats.binom.isf(1e-4, logs, FALSE_ALARM)
    assert normal > stats.binom.isf(1e-4, 6, FALSE_ALARM)


def test_a_policy_that_learns_while_it_logs_is_not_called_wrong() -> None:
    """Propensities depend on the rows before: the last arm that was seen to win is preferred."""
    rng, arms, n_alarms = np.random.default_rng(41), np.array(["a", "b", "c"]), 0
    for _ in range(10):
        shares, rows = np.full(3, 1 / 3), []
        for _ in range(1500):
            arm = int(rng.choice(3, p=shares))
            reward = float(rng.random() < 0.3)
            rows.append((arms[arm], shares[arm], reward))
            if reward:
                shares = np.where(np.arange(3) == arm, 0.98, 0.01)
        names, p, rewards = zip(*rows, strict=True)
        log = {"arm": names, "p": p, "reward": rewards}
        n_alarms += any("do not fit" in warning for warning in lab.evaluate(log, "a").warnings)
    assert n_alarms == 0


@pytest.mark.parametrize("seed", range(2))
def test_wrong_propensities_are_called_wrong(seed: int) -> None:
    """Planted: propensities of an item halved or doubled, or permuted over all rows."""
    impressions, log = draw_log(seed)
    items, counts = np.unique(log["arm"], return_counts=True)
    item = items[np.argsort(counts)[-6]]
    for factor in (0.5, 2.0):
        p = np.where(log["arm"] == item, np.minimum(1, factor * log["p"]), log["p"])
        assert any(f"arm '{item}'" in warning for warning in alarms(log | {"p": p}, impressions, context=["position"]))
    assert alarms(log | {"p": np.random.default_rng(seed).permutation(log["p"])}, impressions)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_propensities_of_an_even_log_are_called_wrong_without_context(factor: float) -> None:
    impressions = Impressions(np.full(34, 0.004), np.full((1, 34), 1 / 34))
    log = impressions.log(ROWS, np.random.default_rng(5))
    assert not alarms(log, impressions)
    [warning] = alarms(log | {"p": np.where(log["arm"] == "7", factor * log["p"], log["p"])}, impressions)
    assert "the propensities of arm '7' do not fit how often everybody got it" in warning
    assert ("mean of 2.1" in warning or "mean of 1.9" in warning) == (factor == 0.5)


def test_rows_of_a_person_with_one_arm_are_not_called_wrong() -> None:
    """Arms are drawn for people with 40 rows each: tested by rows, equal arms would seem far too frequent."""
    rng = np.random.default_rng(8)
    user = np.repeat(np.arange(100), 40)
    log = {"user": user, "arm": rng.choice(["a", "b"], 100)[user], "p": np.full(4000, 0.5), "reward": np.zeros(4000)}
    by_person = lab.evaluate(log, "a", person="user").warnings
    assert not any("do not fit" in warning for warning in by_person)
    assert any("do not fit" in warning for warning in lab.evaluate(log, "a").warnings)
