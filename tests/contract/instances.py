"""Instances of algorithms that the batteries run over, and people who take part in them."""

from typing import Any

import numpy as np

from privateer_core.algorithms import algorithm
from tests.contract.subjects import specs
from tests.support.people import bumps, draw_observations

SPECS = specs()


def kind_of(spec: Any) -> Any:
    """Return the class of its policies."""
    return algorithm(spec.algorithm.name).policy


def draw_people(spec: Any, policy: Any, count: int, seed: int = 3, coins: Any = None) -> Any:
    """Contexts, coins, decisions and rewards of so many people."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, spec.dimension))
    coins = rng.integers(0, 2**32, count, dtype=np.uint32) if coins is None else coins
    decisions = policy.decide(contexts, coins)
    return contexts, coins, decisions, draw_observations(spec, contexts, decisions, bumps(len(spec.options)), rng)
