"""Experiments on convex sets and phased elimination in one process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.policies.policy import Points
from privateer_lab.cli.input_files import load_spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulate import simulate, summarize
from privateer_server.algorithms.convex.learner import ConvexLearner
from tests.support.phased import phased_spec

EXAMPLES = Path(__file__).parents[2] / "examples"


def regret_and_share(name, seeds, *settings):
    """Mean regret of an example, and its share of what points at random lose."""
    runs = list(simulate(load_spec(EXAMPLES / f"convex-{name}.toml", list(settings)), seeds, 1))
    regret = float(np.mean([run.regret for run in runs]))
    return regret, regret / float(np.mean([run.uniform_regret for run in runs]))


@pytest.mark.parametrize(("name", "max_share"), [("two-point", 0.06), ("one-point", 0.2)])
def test_regret_falls_below_a_share_of_that_of_random_points(name, max_share, monkeypatch):
    """Planted: steps in the other direction."""
    assert regret_and_share(name, 2, "experiment.horizon=20000")[1] < max_share
    estimate = ConvexLearner._estimate_gradient
    monkeypatch.setattr(ConvexLearner, "_estimate_gradient", lambda self, *args: -estimate(self, *args))
    assert regret_and_share(name, 2, "experiment.horizon=20000")[1] > max_share


@pytest.mark.nightly
def test_regret_of_the_examples_is_as_promised():
    assert regret_and_share("two-point", 5)[0] <= 600
    assert regret_and_share("one-point", 5)[1] <= 0.04


@pytest.mark.parametrize("settings", [("loss=absolute", "spread=0.3"), ("loss=quadratic", "spread=0.3")])
def test_rewards_have_the_expected_mean_of_their_point(settings):
    """Planted: the best point moved by a tenth. Eight standard errors of a mean of 40,000."""
    spec = load_spec(EXAMPLES / "convex-two-point.toml", [f"population.{setting}" for setting in settings])
    world: Any = environment_for(spec, 3)
    rng = np.random.default_rng(4)
    points = np.tile(rng.uniform(-0.5, 0.5, (1, 2, 3)), (40_000, 1, 1))
    rewards = world.rewards(np.zeros((40_000, 0)), Points(np.zeros(40_000, np.int64), points), rng)
    error = 8 * rewards.std(axis=0) / 200
    assert (np.abs(rewards.mean(axis=0) - world.expected_rewards(points[0])) < error).all()
    assert not (np.abs(rewards.mean(axis=0) - world.expected_rewards(points[0] + 0.1)) < error).all()
    assert (
        world.expected_rewards(world.best) > world.expected_rewards(world.best + 0.01 * rng.normal(size=(50, 3))).max()
    )


def test_signals_beyond_the_range_are_warned_of():
    changes = {"population.scale": 6.0, "experiment.participants": 20_000, "algorithm.participants_factor": 10.0}
    spec = phased_spec(changes, "central")
    summary = summarize(spec, list(simulate(spec, 3, 1)), 0.0)
    assert summary["clipped_share"] > 0.1
    assert any("Widen reward.low" in words for words in summary["warnings"])


def test_runs_on_processes_are_the_same():
    spec = phased_spec(trust="shuffle")
    serial, parallel = (sorted(simulate(spec, 4, jobs), key=lambda run: run.seed) for jobs in (1, 2))
    assert serial == parallel
