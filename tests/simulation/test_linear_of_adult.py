"""Two offers to the UCI Adult census by 20 features: a linear bandit beside a partition by the three best."""

import os
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.simulation.simulate import simulate_without_path

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
