"""Regret of linear bandits by trust model, and on the UCI Adult census; more trust never hurts."""

import math
import os
import statistics
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulate import make_simulation, simulate_once, simulate_without_path
from privateer_server.algorithms.linear.learner import ResidualLearner
from tests.support.specs import linear_spec

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


EXAMPLE = Path(__file__).parents[2] / "examples" / "adult-linear.toml"
BEST = ("education-num", "capital-gain", "marital-status=Married-civ-spouse")
SEEDS, MANY = 6, 20
DRAWS = 12


def reward(algorithm: str, seed: int, features: tuple[str, ...] = (), messages: int = 6) -> float:
    """Mean reward of an experiment with these features, or with all, and so many messages a report at most."""
    first, table = Path(os.environ["PRIVATEER_ADULT"]), tomllib.loads(EXAMPLE.read_text())
    table["population"]["path"] = f"{first},{first.with_name('adult.test.gz')}"
    table["algorithm"] = (
        {"name": "linear", "exploration_scale": 0.25, "messages_per_report": messages}
        if algorithm == "linear"
        else {"name": algorithm}
    )
    if features:
        table["context"]["features"] = {name: table["context"]["features"][name] for name in features}
    return simulate_without_path(parse_spec(table), seed).reward


@cache
def rewards(algorithm: str, features: tuple[str, ...] = (), messages: int = 6, seeds: int = SEEDS) -> np.ndarray:
    """Mean rewards by seed."""
    return np.array([reward(algorithm, seed, features, messages) for seed in range(seeds)])


@pytest.mark.data
@pytest.mark.timeout(900)  # 46 runs
def test_twenty_features_beat_a_partition_by_the_three_best() -> None:
    """The best constant arm earns .290; the partition is told in hindsight which three matter (docs/linear.md).

    On 44 seeds the linear bandit is ahead by .0038 with a standard error of .0008. On 20 that is 3.1 standard errors
    above 0: one such choice of seeds in a thousand alarms. Planted: one message a report, with which it is behind by
    .009.
    """
    partition = rewards("partition", BEST, seeds=MANY)
    assert rewards("linear", seeds=MANY).mean() > partition.mean()
    assert rewards("linear", messages=1).mean() < partition.mean() - 0.001


@pytest.mark.data
def test_five_features_beat_the_best_three_of_a_partition() -> None:
    """Six seeds; the difference has a standard error of .0016, and is .005 on average."""
    five = (*BEST, "occupation=Exec-managerial", "age")
    assert rewards("linear", five).mean() > rewards("partition", BEST).mean() + 0.001


@pytest.mark.data
def test_twenty_features_beat_three_at_random() -> None:
    """Partitions by three features at random have .341, with a standard deviation of .030: the bound is 3 errors away.

    With vectors as a linear bandit had them before it learned of contexts and coordinates, .319, it fails.
    """
    names, rng = list(tomllib.loads(EXAMPLE.read_text())["context"]["features"]), np.random.default_rng(5)
    triples = [tuple(str(name) for name in rng.choice(names, 3, replace=False)) for _ in range(DRAWS)]
    partitions = np.array([reward("partition", seed, three) for seed, three in enumerate(triples)])
    assert rewards("linear").mean() > partitions.mean() + 0.01


ORDER_SEEDS = range(100, 104)
ALLOWED = 1.05
KINDS = {"partition": ("peaks-shuffle", {"horizon": 40_000}, True), "linear": ("linear", {"horizon": 30_000}, False)}
"""Examples of algorithms whose arms depend on the context; what is changed, and whether first rounds are usual."""


def regrets(kind, model, epsilon, **privacy):
    name, experiment, usual = KINDS[kind]
    document = tomllib.loads((EXAMPLES / f"{name}.toml").read_text())
    document["experiment"] |= experiment | ({"round_size": first_size(epsilon)} if usual and model == "local" else {})
    document["privacy"] = {
        "model": model,
        "epsilon": epsilon,
        **({"delta": 1e-6} if model == "shuffle" else {}),
        **privacy,
    }
    spec = parse_spec(document)
    return [simulate_once(spec, seed).regret for seed in ORDER_SEEDS]


def first_size(epsilon):
    """Return the size of a shuffled first round by default, so that trust alone differs."""
    return 1000 if epsilon < 2 else 100


def has_more_regret(losses, other_losses):
    error = math.hypot(*(statistics.stdev(values) / math.sqrt(len(values)) for values in (losses, other_losses)))
    return statistics.mean(losses) > ALLOWED * statistics.mean(other_losses) + 2 * error


@pytest.mark.nightly
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("kind", KINDS)
def test_shuffled_reports_lose_no_more_regret_than_local_reports(kind, epsilon):
    assert not has_more_regret(regrets(kind, "shuffle", epsilon), regrets(kind, "local", epsilon))


@pytest.mark.nightly
def test_planted_a_cap_and_rounds_as_before_lose_more():
    """The least cap that epsilon 8 allows, and first rounds of 1,000 as by the earlier default."""
    before = regrets("partition", "shuffle", 8.0, local_epsilon_max=8.0, min_batch=1000)
    assert has_more_regret(before, regrets("partition", "local", 8.0))
