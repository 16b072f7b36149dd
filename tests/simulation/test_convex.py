"""Experiments on convex sets in one process: what the examples promise."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.policies.decisions import Points
from privateer_lab.cli.input_files import load_spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulate import simulate
from privateer_server.algorithms.convex.learner import ConvexLearner

EXAMPLES = Path(__file__).parents[2] / "examples"


def lost(name, seeds, *settings):
    """Mean regret of an example, and its share of what points at random lose."""
    runs = list(simulate(load_spec(EXAMPLES / f"convex-{name}.toml", list(settings)), seeds, 1))
    regret = float(np.mean([run.regret for run in runs]))
    return regret, regret / float(np.mean([run.uniform_regret for run in runs]))


@pytest.mark.parametrize(("name", "most"), [("two-point", 0.06), ("one-point", 0.2)])
def test_people_lose_less_and_less(name, most, monkeypatch):
    """Planted: steps in the other direction."""
    assert lost(name, 2, "experiment.horizon=20000")[1] < most
    made = ConvexLearner._gradient
    monkeypatch.setattr(ConvexLearner, "_gradient", lambda self, *told: -made(self, *told))
    assert lost(name, 2, "experiment.horizon=20000")[1] > most


@pytest.mark.nightly
def test_what_is_promised_of_the_examples():
    assert lost("two-point", 5)[0] <= 600
    assert lost("one-point", 5)[1] <= 0.04


@pytest.mark.parametrize("settings", [("loss=absolute", "spread=0.3"), ("loss=quadratic", "spread=0.3")])
def test_rewards_are_what_is_expected_of_them(settings):
    """Planted: the best point moved by a tenth. Eight standard errors of a mean of 40,000."""
    spec = load_spec(EXAMPLES / "convex-two-point.toml", [f"population.{setting}" for setting in settings])
    people, rng = environment_for(spec, 3), np.random.default_rng(4)
    points = np.tile(rng.uniform(-0.5, 0.5, (1, 2, 3)), (40_000, 1, 1))
    told = people.rewards(np.zeros((40_000, 0)), Points(np.zeros(40_000, np.int64), points), rng)
    error = 8 * told.std(axis=0) / 200
    assert (np.abs(told.mean(axis=0) - people.expected(points[0])) < error).all()
    assert not (np.abs(told.mean(axis=0) - people.expected(points[0] + 0.1)) < error).all()
    assert people.expected(people.best) > people.expected(people.best + 0.01 * rng.normal(size=(50, 3))).max()
