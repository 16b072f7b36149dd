"""Regret of linear bandits, by trust model, against the figures of docs/linear.md."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulate import make_simulation, simulate_without_path
from privateer_server.algorithms.linear.learner import ResidualLearner
from tests.support.linears import linear_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
DISJOINT = {"name": "disjoint"}


def share_of_uniform(spec, seeds: int) -> float:
    """Mean regret over that of arms at random."""
    runs = [simulate_without_path(spec, seed) for seed in range(seeds)]
    return float(np.mean([run.regret / run.uniform_regret for run in runs]))


@pytest.mark.parametrize(("model", "max_share"), [("none", 0.2), ("central", 0.3), ("shuffle", 0.55), ("local", 0.75)])
def test_regret_falls_under_every_trust_model(model, max_share):
    """20,000 people; two seeds are within 15 % of the figures that the bounds have room for."""
    assert share_of_uniform(linear_spec(model, population=DISJOINT), 2) < max_share


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "epsilon", "max_share"),
    [("local", 1.0, 0.15), ("local", 4.0, 0.04), ("shuffle", 1.0, 0.02), ("central", 1.0, 0.006)],
)
def test_the_figures_of_a_million_people(model, epsilon, max_share):
    promise = [f"privacy.model={model}", f"privacy.epsilon={epsilon}", "privacy.local_epsilon_max=10.0"]
    delta = ["privacy.delta=1e-6"] if model != "local" else []
    assert share_of_uniform(load_spec(EXAMPLES / "linear.toml", promise + delta), 5) <= max_share


@pytest.mark.nightly
def test_the_joint_report_is_three_times_worse():
    settings = ["experiment.horizon=1000000"]
    joint = ["algorithm.report_statistic=joint", "privacy.delta=1e-6"]  # it has normal noise
    specs = [load_spec(EXAMPLES / "linear.toml", [*settings, *options]) for options in ([], joint)]
    separate_share, joint_share = (share_of_uniform(spec, 5) for spec in specs)
    assert joint_share >= 3 * separate_share


def standardized_error(seed: int) -> float:
    """Squared distance of the truth from the posterior, by its covariances, after 93,178 people: 1 on average."""
    settings = ["privacy.model=shuffle", "privacy.delta=1e-6", "privacy.local_epsilon_max=10.0"]
    run: Any = make_simulation(load_spec(EXAMPLES / "linear.toml", settings), seed)
    while run.people < 90_000:
        run.close_round()
    truth = np.concatenate([0.5 + run.environment.intercepts[:, None], run.environment.slopes.T], axis=1)
    means, covariances = run.schedule.learner.estimate_parameters(run.step.state)
    off = means - truth
    return float(np.einsum("ki,kij,kj->k", off, np.linalg.inv(covariances), off).mean()) / truth.shape[1]


@pytest.mark.nightly
def test_a_posteriors_variance_is_about_its_squared_error(monkeypatch):
    """Shuffle, four seeds: the first feature spreads a seventh as far, squared, as is assumed before people tell.

    Twelve seeds had 2.4 on average with a standard deviation of .9: 5 is 6 errors of four seeds away. Planted: no round
    is read again when it is known how contexts spread, and the posterior is surest where it erred (13 on average).
    """
    seeds, learn = range(100, 104), ResidualLearner.learn
    assert np.mean([standardized_error(seed) for seed in seeds]) < 5
    monkeypatch.setattr(ResidualLearner, "learn", lambda *arguments: replace(learn(*arguments), recent=None))
    assert np.mean([standardized_error(seed) for seed in seeds]) > 5
