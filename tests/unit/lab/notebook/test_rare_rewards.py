"""Off-policy estimates of clicks: intervals hold where few or none were seen, and are not much wider than they must."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.notebook.evaluation import read_evaluator
from privateer_lab.tables.data_table import DataTable
from tests.support.logs import few_clicks

FALSE_ALARM = 1e-4
"""Chance, over the choice of seeds, that a test fails though intervals hold in .95."""
ROWS = 10_000
ESTIMATES = ("ips", "snips", "dr", "gain")
LOGS = pytest.mark.parametrize("logs", [2, pytest.param(60, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])])


def evaluations(log: dict[str, Any], items: tuple[str, ...]) -> Iterator[tuple[str, lab.Evaluation]]:
    """Evaluate each item as a policy."""
    columns = {"action": "arm", "reward": "reward", "propensity": "p", "context": ("position",)}
    evaluator = read_evaluator(DataTable(log), None, arms=items, **columns)
    return ((item, evaluator.evaluate(item)) for item in items)


def plain_interval(log: dict[str, Any], item: str) -> tuple[float, float]:
    """The planted defect: IPS with a normal interval."""
    parts = (log["arm"] == item) / log["p"] * log["reward"]
    half_width = 1.96 * parts.std(ddof=1) / ROWS**0.5
    return parts.mean() - half_width, parts.mean() + half_width


@LOGS
@pytest.mark.parametrize("is_skewed", [False, True])
def test_intervals_of_each_item_hold(logs: int, is_skewed: bool) -> None:
    """34 items, whose clicks are rare, in logs of known truth; at night each item by itself."""
    impressions = few_clicks(is_skewed=is_skewed)
    logged = float((impressions.shares[0] * impressions.rates).sum())
    misses = {name: np.zeros(34) for name in (*ESTIMATES, "plain")}
    for seed in range(logs):
        log = impressions.log(ROWS, np.random.default_rng([29, seed]))
        for item, evaluation in evaluations(log, impressions.items):
            truth = impressions.rates[int(item)]
            low, high = plain_interval(log, item)
            misses["plain"][int(item)] += not low <= truth <= high
            for name in ESTIMATES:
                value = getattr(evaluation, name)
                misses[name][int(item)] += not value.low <= truth - logged * (name == "gain") <= value.high
                assert value.low < value.high
    max_total = stats.binom.isf(FALSE_ALARM / 8, logs * 34, 0.05)
    max_of_item = stats.binom.isf(FALSE_ALARM / 8 / 34, logs, 0.05)
    for name in ESTIMATES:
        assert misses[name].sum() <= max_total, name
        assert misses[name].max() <= max_of_item, name
    assert misses["plain"].sum() > max_total


def blaker_width(clicks: int, rows: int, level: float = 0.95) -> float:
    """Width of the exact interval of Blaker (2000), which is within that of Clopper and Pearson."""
    rates = np.linspace(1e-3, 0.999, 20_000) ** 2
    above, below = stats.binom.sf(clicks - 1, rows, rates), stats.binom.cdf(clicks, rows, rates)
    is_near = np.minimum(above, below) > (1 - level) / 4  # accepted rates have half of it, or more
    rates, above, below = rates[is_near], above[is_near], below[is_near]
    tail = np.minimum(above, below)
    lower = stats.binom.cdf(stats.binom.ppf(tail, rows, rates) - 1, rows, rates)
    upper = stats.binom.sf(stats.binom.isf(tail, rows, rates), rows, rates)
    accepted = rates[tail + np.where(above < below, lower, upper) > 1 - level]
    return float(accepted.max() - accepted.min())


@pytest.mark.parametrize("clicks", [0, 1, 2, 3, 6, 12])
def test_intervals_are_at_most_a_third_wider_than_the_best(clicks: int) -> None:
    """An item has 294 of 10,000 rows, as on average; no chance is in here."""
    item = np.arange(ROWS) % 34 == 0
    is_click = np.cumsum(item) * item
    others = np.arange(ROWS) % 200 == 1
    reward = np.where(item, (is_click > 0) & (is_click <= clicks), others & ~item).astype(float)
    log = {"arm": np.where(item, "new", "old"), "p": np.where(item, 1 / 34, 33 / 34), "reward": reward}
    evaluation, best = lab.evaluate(log, "new"), blaker_width(clicks, int(item.sum()))
    for name in ESTIMATES:
        value = getattr(evaluation, name)
        assert value.is_exact
        assert value.high - value.low <= 1.3 * best, name
    exact = stats.binomtest(clicks, int(item.sum())).proportion_ci(0.95, "exact")
    assert (evaluation.snips.low, evaluation.snips.high) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_the_interval_of_an_item_without_clicks_is_wide() -> None:
    """The sample of the Open Bandit data has this: 122 rows of item 0 have no click, and .46 are expected."""
    item, click = np.arange(ROWS) % 82 == 0, np.arange(ROWS) % 263 == 1
    log = {"arm": np.where(item, "0", "other"), "p": np.where(item, 1 / 80, 79 / 80), "reward": click & ~item}
    evaluation = lab.evaluate(log, "0")
    assert evaluation.ips.value == 0
    assert evaluation.ips.low == 0
    assert 0.025 < evaluation.ips.high < 0.035
    assert evaluation.gain.low < 0 < evaluation.gain.high
    assert abs(evaluation.gain.value / evaluation.gain.error) < 2
    assert "Few rewards decide" in repr(evaluation)


def test_intervals_are_within_the_range_and_turn_with_the_reward() -> None:
    """Of 20 rows of the arm 19 have a reward of 1, so that 0 is the rare reward."""
    rewards = np.r_[np.ones(19), 0, np.ones(180)]
    log = {"arm": ["a"] * 20 + ["b"] * 180, "p": [0.1] * 20 + [0.9] * 180, "reward": rewards}
    evaluation, turned = lab.evaluate(log, "a"), lab.evaluate(log | {"reward": 1 - rewards}, "a")
    assert (evaluation.snips.low, evaluation.snips.high) == pytest.approx((1 - turned.snips.high, 1 - turned.snips.low))
    assert 0 < evaluation.ips.low < evaluation.ips.value < evaluation.ips.high == 1
    euros = lab.evaluate(log | {"reward": 50 * rewards}, "a")
    assert (euros.snips.low, euros.snips.high) == pytest.approx((50 * evaluation.snips.low, 50 * evaluation.snips.high))
    wider = lab.evaluate(log | {"reward": 50 * rewards}, "a", bounds=(-50.0, 100.0))
    assert wider.snips.low < euros.snips.low
    assert wider.snips.high > euros.snips.high
    with pytest.raises(SpecError, match="reward: has rewards beyond its bounds"):
        lab.evaluate(log, "a", bounds=(0.0, 0.5))


def test_of_rewards_that_are_all_the_same_the_range_must_be_given() -> None:
    log = {"arm": ["a", "b"] * 50, "p": [0.5] * 100, "reward": [7.0] * 100}
    evaluation = lab.evaluate(log, "a")
    assert np.isnan([evaluation.snips.low, evaluation.snips.high]).all()
    snips = lab.evaluate(log, "a", bounds=(0.0, 7.0)).snips
    assert snips.low == pytest.approx(7 * 0.025 ** (1 / 50))
    assert snips.high == 7.0


def test_rows_of_a_person_count_once_with_few_clicks() -> None:
    """Each row of 300 is there four times: with people limits are those of 300, and without they are narrower."""
    rng = np.random.default_rng(2)
    log = {"arm": rng.choice(["a", "b"], 300), "p": np.full(300, 0.5), "reward": np.arange(300) % 100 == 0}
    four = {name: np.tile(values, 4) for name, values in log.items()} | {"user": np.tile(np.arange(300), 4)}
    single, people, rows = (lab.evaluate(log, "b"), lab.evaluate(four, "b", person="user"), lab.evaluate(four, "b"))
    for name in ("ips", "snips", "logged"):
        left, right = getattr(single, name), getattr(people, name)
        assert (right.low, right.high, right.is_exact) == (pytest.approx(left.low), pytest.approx(left.high), True)
        assert getattr(rows, name).high < left.high


def test_rewards_of_which_none_is_usual_have_student_intervals() -> None:
    """Of 60 rows of an arm with numbers no reward is rare: exact limits would be 1.4 times as wide."""
    rewards = np.random.default_rng(4).random(600)
    log = {"arm": ["a"] * 60 + ["b"] * 540, "p": [0.1] * 60 + [0.9] * 540, "reward": rewards}
    snips, half = lab.evaluate(log, "a").snips, stats.t.ppf(0.975, 59) * stats.sem(rewards[:60])
    assert not snips.is_exact
    assert (snips.low, snips.high) == pytest.approx((snips.value - half, snips.value + half), rel=0.03)
