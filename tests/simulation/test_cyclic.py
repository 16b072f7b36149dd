"""A daily curve that is highest about midnight, with hours that come round and as plain numbers; by fixed seeds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mean_rewards import mean_reward

pytestmark = pytest.mark.nightly

PROMISES: dict[str, dict[str, Any]] = {
    "none": {"model": "none"},
    "central": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
}


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Participants of all hours and ages: "night" is better by night, "day" by day, and more so with age."""
    rng = np.random.default_rng(7)
    hours, ages = np.round(rng.uniform(0, 24, 40_000), 3), np.round(rng.uniform(18, 80, 40_000), 1)
    turn = 2 * np.pi / 24
    night = 0.5 + 0.2 * np.cos(turn * (hours - 23)) + 0.1 * (ages - 49) / 31
    rows = np.stack([hours, ages, night, 0.5 + 0.12 * np.cos(turn * (hours - 11))], axis=1)
    path = tmp_path_factory.mktemp("day") / "day.csv"
    np.savetxt(path, rows, fmt="%.4f", delimiter=",", header="hour,age,night,day", comments="")
    return path


def reward(day: Path, name: str, model: str, **hour: Any) -> float:
    """The mean of two seeds."""
    features = {"hour": {"low": 0, "high": 24, **hour}, "age": {"low": 18, "high": 80}}
    tables = {
        "experiment": {"name": "day", "arms": ["night", "day"], "horizon": 20_000, "min_round_fraction": 0.3},
        "context": {"features": features},
        "privacy": PROMISES[model],
        "algorithm": {"name": name},
        "population": {"name": "rows", "path": str(day)},
    }
    return mean_reward(tables, (200, 201))


@pytest.mark.parametrize("model", PROMISES)
def test_a_linear_bandit_finds_the_daily_curve_where_hours_come_round(day: Path, model: str) -> None:
    """Planted: hours as a plain number, with which it earns about .04 less."""
    assert reward(day, "linear", model, cyclic=True) > max(0.59, reward(day, "linear", model) + 0.03)


@pytest.mark.parametrize("model", PROMISES)
def test_an_additive_bandit_loses_nothing_by_joining_the_ends(day: Path, model: str) -> None:
    assert reward(day, "additive", model, cyclic=True) > max(0.59, reward(day, "additive", model) - 0.01)
