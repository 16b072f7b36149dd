"""Regret of linear bandits, by trust model, against the figures of docs/linear.md."""

from pathlib import Path

import numpy as np
import pytest

from privateer_lab.simulation import simulate_in_short
from privateer_lab.specs import load_spec
from tests.support.linears import linear_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
DISJOINT = {"name": "disjoint"}


def share_of_uniform(spec, seeds: int) -> float:
    """Mean regret over that of arms at random."""
    runs = [simulate_in_short(spec, seed) for seed in range(seeds)]
    return float(np.mean([run.regret / run.uniform_regret for run in runs]))


@pytest.mark.parametrize(("model", "most"), [("none", 0.2), ("central", 0.3), ("shuffle", 0.55), ("local", 0.75)])
def test_regret_falls_under_every_trust_model(model, most):
    """20,000 people; two seeds are within 15 % of the figures that the bounds have room for."""
    assert share_of_uniform(linear_spec(model, population=DISJOINT), 2) < most


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "epsilon", "most"),
    [("local", 1.0, 0.15), ("local", 4.0, 0.04), ("shuffle", 1.0, 0.02), ("central", 1.0, 0.006)],
)
def test_the_figures_of_a_million_people(model, epsilon, most):
    promise = [f"privacy.model={model}", f"privacy.epsilon={epsilon}", "privacy.local_epsilon_max=10.0"]
    delta = ["privacy.delta=1e-6"] if model != "local" else []
    assert share_of_uniform(load_spec(EXAMPLES / "linear.toml", promise + delta), 5) <= most


@pytest.mark.nightly
def test_the_joint_report_is_three_times_worse():
    settings = ["experiment.horizon=1000000"]
    both = [load_spec(EXAMPLES / "linear.toml", [*settings, *more]) for more in ([], ["algorithm.report=joint"])]
    own, joint = (share_of_uniform(spec, 5) for spec in both)
    assert joint >= 3 * own
