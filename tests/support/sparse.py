"""Specs of high-dimensional bandits for tests."""

from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.sparse import SparseSpec

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
