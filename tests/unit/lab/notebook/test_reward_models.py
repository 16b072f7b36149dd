"""Doubly robust estimates: the model that errs least on people left out, never worse than none, folds by person."""

from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from tests.support.logs import few_clicks, world

CONTEXT = ["hour", "plan"]


def noise_log(rows: int = 5000, columns: int = 4) -> dict[str, Any]:
    """Clicks that no context explains, and contexts of 20 terms."""
    rng = np.random.default_rng(12)
    log = few_clicks(is_skewed=False).log(rows, rng) | {"reward": rng.random(rows) < 0.05}
    return log | {f"x{column}": rng.choice(list("abcde"), rows) for column in range(columns)}


@pytest.mark.parametrize("item", ["0", "12", "30"])
def test_a_model_that_explains_nothing_costs_nothing(item: str) -> None:
    """Of a ridge regression of 20 terms for 150 rows the error would be above that of IPS."""
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
