"""Specs for tests: small valid ones of bandits by context, linear and high-dimensional, with changes."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.algorithms.sparse import SparseSpec

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


NUMBER = {"low": -1.0, "high": 1.0}
TRUSTED: dict[str, dict[str, Any]] = {
    "none": {},
    "local": {"epsilon": 1.0},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6, "local_epsilon_max": 10.0},
    "central": {"epsilon": 1.0, "delta": 1e-6},
}


def linear_spec(
    model: str = "none",
    features: Mapping[str, Any] | None = None,
    privacy: Mapping[str, Any] | None = None,
    population: Mapping[str, Any] | None = None,
    **algorithm: Any,
) -> LinearSpec:
    """Return a spec of two arms and, by default, four numbers, under a trust model."""
    data: dict[str, Any] = {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 20_000, "min_round_fraction": 0.3},
        "context": {"features": features or {f"x{j}": NUMBER for j in range(1, 5)}},
        "privacy": {"model": model, **TRUSTED[model], **(privacy or {})},
        "algorithm": {"name": "linear", **algorithm},
    }
    spec = parse_spec(data | ({"population": dict(population)} if population else {}))
    assert isinstance(spec, LinearSpec)
    return spec


_PROMISES: dict[str, dict[str, Any]] = {
    "local": {"model": "local", "epsilon": 4.0},
    "shuffle": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
    "central": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
    "none": {"model": "none"},
}


def sparse_tables(model: str = "central", **changes: Any) -> dict[str, Any]:
    """The tables of a spec: 30 features of three arms, 16,000 people; ``experiment__horizon=...`` changes one."""
    data: dict[str, Any] = {
        "experiment": {
            "name": "test", "arms": ["a", "b", "c"], "horizon": 16_000, "round_size": 1000, "min_round_fraction": 1.0,
        },
        "context": {"features": 30},
        "reward": {"low": -2.0, "high": 2.0},
        "privacy": dict(_PROMISES[model]),
        "algorithm": {"name": "sparse", "sparsity": 3},
        "population": {"name": "needles"},
    }  # fmt: skip
    for name, value in changes.items():
        table, key = name.split("__")
        data[table][key] = value
    return data


def sparse_spec(model: str = "central", **changes: Any) -> SparseSpec:
    """The spec of `sparse_tables`."""
    spec = parse_spec(sparse_tables(model, **changes))
    assert isinstance(spec, SparseSpec)
    return spec
