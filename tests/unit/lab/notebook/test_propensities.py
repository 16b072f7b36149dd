"""Off-policy estimates: alarms about propensities, intervals of rare rewards, and models of rewards."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_lab.notebook.evaluation import read_evaluator
from privateer_lab.tables.data_table import DataTable
from tests.support.logs import Impressions, few_clicks, thompson, world

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


RARE_FALSE_ALARM = 1e-4
"""Chance, over the choice of seeds, that a test fails though intervals hold in .95."""
ESTIMATES = ("ips", "snips", "dr", "gain")
MANY_LOGS = pytest.param(60, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])
RARE_LOGS = pytest.mark.parametrize("logs", [2, MANY_LOGS])


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


@RARE_LOGS
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
    max_total = stats.binom.isf(RARE_FALSE_ALARM / 8, logs * 34, 0.05)
    max_of_item = stats.binom.isf(RARE_FALSE_ALARM / 8 / 34, logs, 0.05)
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
    """The rare reward is 0: 19 of the arm's 20 rows have a reward of 1."""
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
    """Numeric rewards are never rare: exact limits for 60 rows would be 1.4 times as wide."""
    rewards = np.random.default_rng(4).random(600)
    log = {"arm": ["a"] * 60 + ["b"] * 540, "p": [0.1] * 60 + [0.9] * 540, "reward": rewards}
    snips, half = lab.evaluate(log, "a").snips, stats.t.ppf(0.975, 59) * stats.sem(rewards[:60])
    assert not snips.is_exact
    assert (snips.low, snips.high) == pytest.approx((snips.value - half, snips.value + half), rel=0.03)


CONTEXT = ["hour", "plan"]


def noise_log(rows: int = 5000, columns: int = 4) -> dict[str, Any]:
    """Clicks that no context explains, and contexts of 20 terms."""
    rng = np.random.default_rng(12)
    log = few_clicks(is_skewed=False).log(rows, rng) | {"reward": rng.random(rows) < 0.05}
    return log | {f"x{column}": rng.choice(list("abcde"), rows) for column in range(columns)}


@pytest.mark.parametrize("item", ["0", "12", "30"])
def test_a_model_that_explains_nothing_costs_nothing(item: str) -> None:
    """A ridge regression of 20 terms on 150 rows would have a larger error than IPS."""
    evaluation = lab.evaluate(noise_log(), item, context=["x0", "x1", "x2", "x3"])
    assert evaluation.dr.error <= 1.05 * evaluation.ips.error
    assert "ridge" not in evaluation.model
    assert f"rows left out, is {evaluation.model}" in repr(evaluation)


def test_a_model_that_explains_rewards_is_chosen_and_helps() -> None:
    environment = world()
    log = environment.log(6000, np.random.default_rng(14))
    log["reward"] = 5 + 10 * environment.means[log["hour"].astype(int), (log["plan"] == "paid").astype(int), 0]
    evaluation = lab.evaluate(log, environment.target_policy, context=CONTEXT)
    assert evaluation.model == "a ridge regression an arm"
    assert evaluation.dr.error < 0.4 * evaluation.ips.error
    means = lab.evaluate(log, "left")
    assert means.model == "the arms' means"
    assert means.dr.error < 0.5 * means.ips.error


def test_folds_never_split_a_person() -> None:
    """A column that names the person explains rewards within a person, but not of people in other folds."""
    rng = np.random.default_rng(15)
    user = np.repeat(np.arange(20), 50)
    log = {
        "user": user,
        "name": np.array([f"u{number}" for number in user]),
        "arm": rng.choice(["a", "b"], 1000),
        "p": np.full(1000, 0.5),
        "reward": rng.random(20).round()[user],
    }
    assert "ridge" in lab.evaluate(log, "a", context=["name"]).model
    evaluation = lab.evaluate(log, "a", context=["name"], person="user")
    assert "ridge" not in evaluation.model
    assert (evaluation.n_rows, evaluation.n_people) == (1000, 20)
    assert "1,000 rows, of 20 people" in repr(evaluation)
    assert not any("--person" in warning for warning in evaluation.warnings)


def test_a_column_of_people_that_repeat_is_noticed() -> None:
    log = noise_log() | {"user_id": np.arange(5000) // 4}
    hint = "user_id has 1,250 values in 5,000 rows: if it says whose row it is, give --person user_id."
    assert any(hint in warning for warning in lab.evaluate(log, "1").warnings)
    assert "5,000 rows, which count as different people" in repr(lab.evaluate(log, "1"))
