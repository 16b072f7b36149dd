"""Off-policy estimates: right on average, intervals that hold as often as they say, and words where they cannot."""

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


def judge(log: dict[str, Any], here: World, **more: Any) -> lab.Evaluation:
    return lab.evaluate(log, here.judged, context=CONTEXT, arms=ARMS, **more)


def bounds(runs: int, alarm: float = FALSE_ALARM) -> tuple[float, float]:
    """The shares of intervals that may hold the truth: 93 to 97 % in 400 runs, or what chance allows in fewer."""
    if runs == 400:
        return 0.93, 0.97
    low, high = stats.binom.ppf([alarm / 6, 1 - alarm / 6], runs, 0.95) / runs
    return float(low), float(high)


def coverage(runs: int, here: World, spoil: Any = None) -> dict[str, float]:
    """The share of runs in which each interval has the truth in it."""
    held = dict.fromkeys(("ips", "snips", "dr"), 0)
    for seed in range(runs):
        log = here.log(PEOPLE, np.random.default_rng([17, seed]))
        found = judge(spoil(log) if spoil else log, here)
        for name in held:
            one = getattr(found, name)
            held[name] += one.low <= here.truth <= one.high
    return {name: count / runs for name, count in held.items()}


def evened(log: dict[str, Any]) -> dict[str, Any]:
    """The planted defect: somebody logs that arms were chosen evenly, and they were not."""
    return log | {"p": np.full(len(log["p"]), 1 / 3)}


@RUNS
def test_intervals_hold_as_often_as_they_say(runs: int) -> None:
    low, high = bounds(runs)
    found = coverage(runs, world())
    assert all(low <= share <= high for share in found.values()), found


def test_wrong_propensities_are_caught() -> None:
    """Intervals by weights fail then, and the warning finds it."""
    here = world()
    found = coverage(120, here, evened)
    assert found["ips"] < bounds(120)[0]
    log = here.log(6000, np.random.default_rng(5))
    assert not judge(log, here).warnings
    assert any("propensities of arm" in one for one in judge(evened(log), here).warnings)


def test_right_propensities_are_seldom_called_wrong() -> None:
    """At most one alarm in a thousand logs, as stated: 3 or more in 300 have a chance of .4 %."""
    here = world()
    logs = (here.log(PEOPLE, np.random.default_rng([23, seed])) for seed in range(300))
    assert sum(any("do not fit" in one for one in judge(log, here).warnings) for log in logs) < 3


def plainly(log: dict[str, Any], here: World, folds: int = 5, seed: int = 0) -> dict[str, float]:
    """The same estimates row by row, without anything of ours but the order of folds."""
    n, totals, weighted, robust = len(log["arm"]), 0.0, [], []
    shares = here.judged(log)
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
    for one in range(folds):
        known = [i for i in range(n) if fold[i] != one]
        mean = sum(log["reward"][i] for i in known) / len(known)
        models = {}
        for arm in ARMS:
            of_arm = [i for i in known if log["arm"][i] == arm]
            x, y = np.array([rows[i] for i in of_arm]), np.array([log["reward"][i] - mean for i in of_arm])
            penalized = np.vstack([x, np.eye(x.shape[1])]), np.concatenate([y, np.zeros(x.shape[1])])
            models[arm] = np.linalg.lstsq(*penalized, rcond=None)[0]
        for i in (i for i in range(n) if fold[i] == one):
            said = {arm: mean + float(np.dot(rows[i], models[arm])) for arm in ARMS}
            weight = shares[log["arm"][i]][i] / log["p"][i]
            robust[i] = sum(shares[arm][i] * said[arm] for arm in ARMS) + weight * (
                log["reward"][i] - said[log["arm"][i]]
            )
    return {"ips": sum(weighted) / n, "snips": sum(weighted) / totals, "dr": sum(robust) / n}


def test_estimates_are_those_of_a_plain_implementation() -> None:
    here = world()
    log = here.log(600, np.random.default_rng(3))
    found = judge(log, here)
    for name, value in plainly(log, here).items():
        assert getattr(found, name).value == pytest.approx(value, rel=1e-9)
    weights = np.array([here.judged(log)[arm][i] / log["p"][i] for i, arm in enumerate(log["arm"])])
    assert found.effective == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert found.largest == pytest.approx(weights.max() / weights.sum())
    error = np.std(weights * log["reward"], ddof=1) / 600**0.5
    assert found.ips.high - found.ips.value == pytest.approx(stats.t.ppf(0.975, 599) * error)


def test_the_gain_is_over_the_log() -> None:
    here = world()
    found = judge(here.log(4000, np.random.default_rng(8)), here)
    assert found.gain.value == pytest.approx(found.dr.value - found.logged.value)
    logged = float((here.means * here.logging).sum(axis=2).mean())
    assert found.gain.low <= here.truth - logged <= found.gain.high


def test_an_arm_a_function_and_a_policy_agree() -> None:
    log = world().log(800, np.random.default_rng(1))
    by_name = lab.evaluate(log, "right", context=CONTEXT)
    by_function = lab.evaluate(log, lambda c: np.full(len(c["hour"]), "right"), context=CONTEXT)
    assert by_name.values == by_function.values


def test_a_decoded_policy_is_judged_by_its_own_shares() -> None:
    made = lab.simulate("examples/peaks-local.toml", users=3000, seeds=1)
    rng = np.random.default_rng(2)
    log: dict[str, Any] = {"x1": rng.random(2000), "x2": rng.random(2000), "arm": rng.choice(ARMS, 2000)}
    log["reward"] = (rng.random(2000) < (log["arm"] == "left") * log["x1"]).astype(float)
    shares = made.policy.shares(log)
    assert shares.shape == (2000, 3)
    assert np.allclose(shares.sum(axis=1), 1)
    got = shares[np.arange(2000), [made.policy.arms.index(arm) for arm in log["arm"]]]
    found = lab.evaluate(log, made.policy, context=["x1"], propensity=1 / 3)
    assert found.ips.value == pytest.approx((3 * got * log["reward"]).mean())


def test_what_intervals_cannot_say_is_said_in_words() -> None:
    rng = np.random.default_rng(4)
    n = 2000
    rare = rng.random(n) < 0.01
    log = {"arm": np.where(rare, "new", "old"), "p": np.where(rare, 0.01, 0.99), "reward": rng.random(n)}
    assert any("uneven" in one for one in lab.evaluate(log, "new").warnings)
    unseen = lab.evaluate(log, "other", arms=["old", "new", "other"])
    assert any("nobody in the log" in one for one in unseen.warnings)
    assert np.isnan(unseen.snips.value)
    assert "nan" in repr(unseen)


def test_people_who_can_never_get_an_arm_are_noticed() -> None:
    rng = np.random.default_rng(6)
    x = rng.random(3000)
    arm = np.where((x > 0.5) & (rng.random(3000) < 0.5), "b", "a")
    log = {"x": x, "arm": arm, "p": np.where(x > 0.5, 0.5, 1.0), "reward": rng.random(3000)}
    assert any("can never get" in one for one in lab.evaluate(log, "b", context=["x"]).warnings)


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
    """Half of the policy's choices are of an arm that nobody got, and a hundredth of the rows have the other one."""
    arms = [str(arm) for arm in range(100)]
    log = {"arm": arms * 30, "p": [0.01] * 3000, "reward": [1.0] * 3000}
    found = lab.evaluate(log, lambda _: {"7": 0.5, "unseen": 0.5}, arms=[*arms, "unseen"])
    assert (found.followed, found.supported) == pytest.approx((0.01, 0.5))
    assert "1.0% of the log's choices, and 50.0% of its own" in found.notes[1]
    assert lab.evaluate(log, "7", arms=[str(arm) for arm in range(1000)]).supported == 1.0
    with pytest.raises(SpecError, match="at most 1,000 arms"):
        lab.evaluate(log, "7", arms=[str(arm) for arm in range(1001)])
