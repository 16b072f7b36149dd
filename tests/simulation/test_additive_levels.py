"""A thousand levels of which fifty matter, beside the most frequent ones alone, for the same people. Fixed seeds."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from privateer_core.algorithms import parse_spec
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment, environment_for
from privateer_lab.environments.environment import Array
from privateer_lab.planning.expectation.partial_runs import KeptFeatures, PartialRun, run_partially
from tests.simulation.test_additive import PROMISES

pytestmark = pytest.mark.nightly

EXAMPLE = Path(__file__).parents[2] / "examples" / "additive-many-levels.toml"
SEEDS = (0, 1)
FEW = 15


class FirstLevels(KeptFeatures):
    """People of another environment; devices take all but the first levels for one."""

    def __init__(self, people: Environment, levels: int) -> None:
        super().__init__(people, (0,), 1)
        self._levels = levels

    @override
    def contexts(self, _n_seen: int, people: int, rng: np.random.Generator) -> Array:
        levels = super().contexts(_n_seen, people, rng)
        return np.concatenate([np.minimum(levels, self._levels), levels], axis=1)

    @override
    def _restore_order(self, contexts: Array) -> Array:
        return contexts[:, 1:]


def gain(model: str, levels: int) -> float:
    """What choosing earns above the best arm a person, on average of the seeds."""
    tables: dict[str, Any] = tomllib.loads(EXAMPLE.read_text())
    tables["privacy"] = PROMISES[model]
    whole = parse_spec(tables)
    assert isinstance(whole, ArmsSpec)
    tables["context"]["features"]["town"] = {"levels": list(range(levels))}
    spec = parse_spec(tables)
    runs = [
        run_partially(spec, seed, np.inf, lambda seed_spec: FirstLevels(environment_for(whole, seed_spec), levels))
        for seed in SEEDS
    ]
    return float(np.mean([run.gain for run in runs if isinstance(run, PartialRun)]))


@pytest.mark.parametrize("model", ["none", "central"])
def test_a_thousand_levels_earn_more_than_the_most_frequent_levels(model: str) -> None:
    """A policy that knows all rewards gains .028 over the best arm; one that knows the first 15 levels gains .013."""
    gain_of_all, gain_of_first = gain(model, 1000), gain(model, FEW)
    print(f"{model}: all {gain_of_all:.4f}, the first {FEW} {gain_of_first:.4f}")
    assert gain_of_all > gain_of_first > 0
