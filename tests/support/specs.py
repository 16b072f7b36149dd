"""Specs for tests: a small valid one, with changes."""

from copy import deepcopy
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.partition import PartitionSpec

_PLAIN: dict[str, Any] = {
    "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "round_size": 1000},
    "context": {"features": {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "local", "epsilon": 1.0},
    "algorithm": {"name": "partition"},
}


def tables(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The tables of a valid local spec; ``changes`` maps dotted names to values."""
    data = deepcopy(_PLAIN)
    for name, value in (changes or {}).items():
        *path, last = name.split(".")
        table = data
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return data


def make_spec(changes: dict[str, Any] | None = None, *, dimension: int = 2, arms: int = 3) -> PartitionSpec:
    """A valid spec of ``dimension`` features and ``arms`` arms, changed as in `tables`."""
    sizes = {
        "context.features": {f"x{j + 1}": {"low": 0.0, "high": 1.0} for j in range(dimension)},
        "experiment.arms": [f"arm-{k}" for k in range(arms)],
    }
    spec = parse_spec(tables({**sizes, **(changes or {})}))
    assert isinstance(spec, PartitionSpec)
    return spec


SHUFFLE = {"privacy.model": "shuffle", "privacy.delta": 1e-6, "privacy.epsilon": 1.0}
