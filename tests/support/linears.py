"""Specs of linear bandits for tests."""

from collections.abc import Mapping
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.linear.spec import LinearSpec

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
