"""Off-policy estimates: unbiased, with confidence intervals of their stated level, and warnings."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import privateer_lab as lab
from privateer_core.errors import SpecError
from tests.support.logs import ARMS, World, world

CONTEXT = ["hour", "plan"]
PEOPLE = 1500
RUNS = pytest.mark.parametrize("runs", [120, pytest.param(400, marks=pytest.mark.nightly)])
FALSE_ALARM = 1e-4
"""Chance, over the choice of seeds, that a share of intervals is out of its bounds though all of them are right."""


def judge(log: dict[str, Any], environment: World, **options: Any) -> lab.Evaluation:
    return lab.evaluate(log, environment.target_policy, context=CONTEXT, arms=ARMS, **options)


def bounds(runs: int, alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """Return the bounds of the share of intervals that contain the truth: 93 to 97 % in 400 runs, wider in fewer."""
    if runs == 400:
        return 0.93, 0.97
    low, high = stats.binom.ppf([alarm / 6, 1 - alarm / 6], runs, 0.95) / runs
    return float(low), float(high)


def coverage(runs: int, environment: World, spoil: Any = None) -> dict[str, float]:
    """Return the share of runs in which each confidence interval contains the truth."""
    n_covered = dict.fromkeys(("ips", "snips", "dr"), 0)
    for seed in range(runs):
        log = environment.log(PEOPLE, np.random.default_rng([17, seed]))
        evaluation = judge(spoil(log) if spoil else log, environment)
        for name in n_covered:
            interval = getattr(evaluation, name)
            n_covered[name] += interval.low <= environment.truth <= interval.high
    return {name: count / runs for name, count in n_covered.items()}


def with_even_propensities(log: dict[str, Any]) -> dict[str, Any]:
    """Plant equal propensities in a log whose arms were chosen with unequal probabilities."""
    return log | {"p": np.full(len(log["p"]), 1 / 3)}


@RUNS
def test_confidence_intervals_contain_the_truth_at_their_level(runs: int) -> None:
    low, high = bounds(runs)
    shares = coverage(runs, world())
    assert all(low <= share <= high for share in shares.values()), shares


def test_wrong_propensities_are_caught() -> None:
    """Intervals by weights fail then, and the warning finds it."""
    environment = world()
    shares = coverage(120, environment, with_even_propensities)
    assert shares["ips"] < bounds(120)[0]
    log = environment.log(6000, np.random.default_rng(5))
    assert not judge(log, environment).warnings
    assert any("propensities of arm" in warning for warning in judge(with_even_propensities(log), environment).warnings)


def test_right_propensities_are_seldom_called_wrong() -> None:
    """At most one alarm in a thousand logs, as stated: 3 or more in 300 have a chance of .4 %."""
    environment = world()
    logs = (environment.log(PEOPLE, np.random.default_rng([23, seed])) for seed in range(300))
    assert sum(any("do not fit" in warning for warning in judge(log, environment).warnings) for log in logs) < 3


def estimate_by_rows(log: dict[str, Any], environment: World, folds: int = 5, seed: int = 0) -> dict[str, float]:
    """Compute the estimates row by row, independently of the tested code except for the order of folds."""
    n, totals, weighted, robust = len(log["arm"]), 0.0, [], []
    shares = environment.target_policy(log)
    hour = (log["hour"] - log["hour"].mean()) / log["hour"].std()
    counts = {plan: int((log["plan"] == plan).sum()) for plan in ("free", "paid")}
    plans = sorted(counts, key=lambda plan: (-counts[plan], plan))
    rows = [[1.0, hour[i], hour[i] ** 2, *(float(log["plan"][i] == plan) for plan in plans)] for i in range(n)]
    fold = np.random.default_rng(seed).permutation(n) % folds
    for i in range(n):
        weight = shares[log["arm"][i]][i] / log["p"][i]
        totals += weight
        weighted.append(weight * log["reward"][i])
        robust.append(0.0)
    for indice in range(folds):
        train = [i for i in range(n) if fold[i] != indice]
        mean = sum(log["reward"][i] for i in train) / len(train)
        models = {}
        for arm in ARMS:
            of_arm = [i for i in train if log["arm"][i] == arm]
            x, y = np.array([rows[i] for i in of_arm]), np.array([log["reward"][i] - mean for i in of_arm])
            penalized = np.vstack([x, np.eye(x.shape[1])]), np.concatenate([y, np.zeros(x.shape[1])])
            models[arm] = np.linalg.lstsq(*penalized, rcond=None)[0]
        for i in (i for i in range(n) if fold[i] == indice):
            predicted = {arm: mean + float(np.dot(rows[i], models[arm])) for arm in ARMS}
            weight = shares[log["arm"][i]][i] / log["p"][i]
            robust[i] = sum(shares[arm][i] * predicted[arm] for arm in ARMS) + weight * (
                log["reward"][i] - predicted[log["arm"][i]]
            )
    return {"ips": sum(weighted) / n, "snips": sum(weighted) / totals, "dr": sum(robust) / n}


def test_estimates_are_those_of_a_plain_implementation() -> None:
    environment = world()
    log = environment.log(600, np.random.default_rng(3))
    evaluation = judge(log, environment)
    for name, value in estimate_by_rows(log, environment).items():
        assert getattr(evaluation, name).value == pytest.approx(value, rel=1e-9)
    weights = np.array([environment.target_policy(log)[arm][i] / log["p"][i] for i, arm in enumerate(log["arm"])])
    assert evaluation.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert evaluation.largest == pytest.approx(weights.max() / weights.sum())
    error = np.std(weights * log["reward"], ddof=1) / 600**0.5
    assert evaluation.ips.high - evaluation.ips.value == pytest.approx(stats.t.ppf(0.975, 599) * error)


def test_the_gain_is_over_the_log() -> None:
    environment = world()
    evaluation = judge(environment.log(4000, np.random.default_rng(8)), environment)
    assert evaluation.gain.value == pytest.approx(evaluation.dr.value - evaluation.logged.value)
    logged = float((environment.means * environment.logging).sum(axis=2).mean())
    assert evaluation.gain.low <= environment.truth - logged <= evaluation.gain.high


def test_an_arm_a_function_and_a_policy_agree() -> None:
    log = world().log(800, np.random.default_rng(1))
    by_name = lab.evaluate(log, "right", context=CONTEXT)
    by_function = lab.evaluate(log, lambda c: np.full(len(c["hour"]), "right"), context=CONTEXT)
    assert by_name.values == by_function.values


def test_a_decoded_policy_is_judged_by_its_own_shares() -> None:
    simulated = lab.simulate("examples/peaks-local.toml", users=3000, seeds=1)
    rng = np.random.default_rng(2)
    log: dict[str, Any] = {"x1": rng.random(2000), "x2": rng.random(2000), "arm": rng.choice(ARMS, 2000)}
    log["reward"] = (rng.random(2000) < (log["arm"] == "left") * log["x1"]).astype(float)
    shares = simulated.policy.shares(log)
    assert shares.shape == (2000, 3)
    assert np.allclose(shares.sum(axis=1), 1)
    logged_shares = shares[np.arange(2000), [simulated.policy.arms.index(arm) for arm in log["arm"]]]
    evaluation = lab.evaluate(log, simulated.policy, context=["x1"], propensity=1 / 3)
    assert evaluation.ips.value == pytest.approx((3 * logged_shares * log["reward"]).mean())


def test_limits_of_the_intervals_are_stated() -> None:
    rng = np.random.default_rng(4)
    n = 2000
    rare = rng.random(n) < 0.01
    log = {"arm": np.where(rare, "new", "old"), "p": np.where(rare, 0.01, 0.99), "reward": rng.random(n)}
    assert any("uneven" in warning for warning in lab.evaluate(log, "new").warnings)
    unseen = lab.evaluate(log, "other", arms=["old", "new", "other"])
    assert any("nobody in the log" in warning for warning in unseen.warnings)
    assert np.isnan(unseen.snips.value)
    assert "nan" in repr(unseen)


def test_people_who_can_never_get_an_arm_are_noticed() -> None:
    rng = np.random.default_rng(6)
    x = rng.random(3000)
    arm = np.where((x > 0.5) & (rng.random(3000) < 0.5), "b", "a")
    log = {"x": x, "arm": arm, "p": np.where(x > 0.5, 0.5, 1.0), "reward": rng.random(3000)}
    assert any("can never get" in warning for warning in lab.evaluate(log, "b", context=["x"]).warnings)


@pytest.mark.parametrize("numbers", [[0, 1], [1, 2], [7, 3]])
def test_a_number_is_the_arm_of_that_name_and_never_a_place(numbers: list[int]) -> None:
    log = {"arm": np.array(numbers * 50), "p": [0.5] * 100, "reward": np.array([0.0, 1.0] * 50)}
    for number, mean in zip(numbers, (0.0, 1.0), strict=True):
        for policy in (number, np.int64(number), str(number)):
            assert lab.evaluate(log, policy).snips.value == mean
    with pytest.raises(SpecError, match=r"policy: a number is the arm of that name, .*write the arm's name, as in '"):
        lab.evaluate(log, 9)
    with pytest.raises(SpecError, match="a number is the arm of that name, and there is none among a, b"):
        lab.evaluate(log | {"arm": ["a", "b"] * 50}, 1)
    with pytest.raises(SpecError, match="is no policy"):
        lab.evaluate(log, True)


def test_a_thousand_arms_and_how_far_policy_and_log_overlap() -> None:
    """Half of the policy's choices are of an arm without rows, and a hundredth of the rows have its other arm."""
    arms = [str(arm) for arm in range(100)]
    log = {"arm": arms * 30, "p": [0.01] * 3000, "reward": [1.0] * 3000}
    evaluation = lab.evaluate(log, lambda _: {"7": 0.5, "unseen": 0.5}, arms=[*arms, "unseen"])
    assert (evaluation.followed, evaluation.supported) == pytest.approx((0.01, 0.5))
    assert "1.0% of the log's choices, and 50.0% of its own" in evaluation.notes[1]
    assert lab.evaluate(log, "7", arms=[str(arm) for arm in range(1000)]).supported == 1.0
    with pytest.raises(SpecError, match="at most 1,000 arms"):
        lab.evaluate(log, "7", arms=[str(arm) for arm in range(1001)])
