"""Rewards that drift: memory follows them, costs little without drift, and `show` detects it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulate import simulate_once
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.partition.forgetting import FALSE_ALARM_RATE
from privateer_server.algorithms.partition.gaussian_process import BinProcess
from tests.support.specs import SHUFFLE, make_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
SLIDE = {"name": "slide", "period": 1000, "step": 0.005}
SWAP = {"name": "swap", "period": 25_000}
LOCAL, LOCAL_4, SHUFFLED = ("peaks-local.toml", ()), ("peaks-local.toml", ("privacy.epsilon=4",)), "peaks-shuffle.toml"
STEADY = (SHUFFLED, ("experiment.min_round_fraction=0",))
MOST = [
    (LOCAL, None, 2367),
    (LOCAL, SLIDE, 7708),
    (LOCAL, SWAP, 17_638),
    (LOCAL_4, None, 915),
    (LOCAL_4, SLIDE, 2547),
    (LOCAL_4, SWAP, 5377),
    (STEADY, None, 1173),
    (STEADY, SLIDE, 3465),
    (STEADY, SWAP, 8066),
]
"""What a bank of memories lost in the measurement that the design rests on, 100,000 people."""


def small_spec(memory, population, **changes):
    """20,000 people at epsilon 4, in rounds of 500."""
    sizes = {
        "privacy.epsilon": 4.0,
        "experiment.round_size": 500,
        "algorithm.half_life": memory,
        "population": population,
    }
    return make_spec({**sizes, **changes})


def test_memory_follows_arms_that_change_places():
    moving = {"name": "peaks", "drift": {"name": "swap", "period": 7000}}
    never, auto = (simulate_once(small_spec(memory, moving), 0).regret for memory in ("none", "auto"))
    assert auto < 0.6 * never


@pytest.mark.nightly
@pytest.mark.parametrize(("example", "drift", "bank"), MOST)
def test_regret_under_drift_is_at_most_a_third_above_the_designs(example, drift, bank):
    """At most 1.3 times the regret that was measured for the design, over 10 seeds."""
    name, changes = example
    moves = [f"population.drift={{ {', '.join(f'{k} = {v!r}' for k, v in drift.items())} }}"] if drift else []
    settings = ["experiment.horizon=100000", "algorithm.half_life=auto", *changes, *moves]
    spec = load_spec(EXAMPLES / name, settings)
    assert np.mean([simulate_once(spec, seed).regret for seed in range(10)]) <= 1.3 * bank


def has_detected_drift(spec, seed):
    """Whether drift is detected in any round of an experiment."""
    learner: Any = learner_for(spec)
    has_drift: list[bool] = []

    def watch(step):
        drift_test = learner.detect_change(step.state)
        has_drift.append(drift_test is not None and drift_test.detected)

    simulate_once(spec, seed, watch=watch)
    return any(has_drift)


QUIET = [
    ({"name": "peaks"}, {}),
    ({"name": "peaks"}, {"privacy.epsilon": 1.0}),
    ({"name": "peaks", "density": {"name": "varied"}}, {}),
    ({"name": "peaks", "density": {"name": "varied"}}, {**SHUFFLE, "experiment.round_size": 1000}),
]


def count_alarms(population, changes, runs):
    return sum(has_detected_drift(small_spec("none", population, **changes), seed) for seed in range(runs))


@pytest.mark.nightly
@pytest.mark.parametrize(("population", "changes"), QUIET)
def test_drift_is_detected_no_more_often_than_the_level_where_rewards_do_not_move(population, changes):
    """50 experiments, looked at after every round; more alarms than allowed come with probability 1e-6."""
    assert count_alarms(population, changes, 50) <= stats.binom.isf(1e-6, 50, FALSE_ALARM_RATE)


@pytest.mark.nightly
def test_a_drift_test_that_overstates_its_information_is_caught(monkeypatch):
    """Planted: a window's evidence as if its observations were eight times as precise."""

    def bold(self):
        return sum(
            type(group)(group.lower, group.upper, 8 * group.information, 8 * group.weighted).log_density(self.kernel)
            for _, group in self.groups
        )

    monkeypatch.setattr(BinProcess, "log_density", bold)
    assert count_alarms({"name": "peaks"}, {}, 20) > stats.binom.isf(1e-6, 20, FALSE_ALARM_RATE)


@pytest.mark.parametrize("drift", [{"name": "swap", "period": 8000}, {"name": "slide", "period": 1000, "step": 0.05}])
def test_a_drift_is_noticed(drift):
    assert has_detected_drift(small_spec("none", {"name": "peaks", "drift": drift}), 0)
