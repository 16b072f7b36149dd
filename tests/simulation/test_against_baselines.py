"""The policy beside the paper's algorithm made honest, on functions that no constant was chosen on."""

import numpy as np
import pytest

from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import play_once
from privateer_lab.simulation.simulate import simulate_once
from tests.support.specs import make_spec

UNTOUCHED = range(2000, 2020)
"""Smooth functions that were not looked at in development."""
SHAPES = ("gentle", "rough", "ridge", "close")


def smooth_spec(function: int, people: int) -> Spec:
    changes = {
        "experiment.horizon": people,
        "experiment.round_size": 100,
        "population": {"name": "smooth", "function": function, "shape": SHAPES[function % 4]},
    }
    return make_spec(changes)


def regret_ratios(functions: range, people: int) -> np.ndarray:
    """Regret of the paper's honest algorithm in units of ours, function by function."""
    specs = [smooth_spec(function, people) for function in functions]
    regrets = [play_once(spec, ["ldpmab"], 0)[0].regret for spec in specs]
    return np.array(regrets) / [simulate_once(spec, 0).regret for spec in specs]


def test_four_functions_in_small() -> None:
    ratios = regret_ratios(UNTOUCHED[:4], 20_000)
    assert np.exp(np.log(ratios).mean()) >= 1.5
    assert ratios.min() >= 1


@pytest.mark.nightly
def test_twenty_functions() -> None:
    ratios = regret_ratios(UNTOUCHED, 80_000)
    assert np.exp(np.log(ratios).mean()) >= 3
    assert ratios.min() >= 1


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_hundred_seeds_of_a_million_people() -> None:
    """No run is stuck: the worst of 200 seeds loses at most twice the mean."""
    changes = {
        "experiment.horizon": 1_000_000,
        "experiment.round_size": 1000,
        "experiment.min_round_fraction": 0.05,
        "population.name": "peaks",
        "privacy.model": "shuffle",
        "privacy.delta": 1e-6,
    }
    regrets = np.array([simulate_once(make_spec(changes), seed).regret for seed in range(200)])
    assert regrets.max() <= 2 * regrets.mean()
    assert regrets.mean() <= 12_000
