"""Phased specs for tests: a small valid one, with changes."""

from copy import deepcopy
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec

_PLAIN: dict[str, Any] = {
    "experiment": {"name": "test", "horizon": 20_000, "participants": 5_000},
    "actions": {"count": 30, "dimension": 4, "seed": 2},
    "reward": {"low": -1.0, "high": 1.0},
    "privacy": {"model": "none"},
    "algorithm": {"name": "phased"},
    "population": {"name": "linear"},
}
TRUST: dict[str, dict[str, Any]] = {
    "none": {},
    "central": {"model": "central", "epsilon": 4.0, "delta": 1e-6},
    "central-published": {"model": "central", "epsilon": 4.0, "delta": 1e-6},
    "local": {"model": "local", "epsilon": 4.0},
    "local-normal": {"model": "local", "epsilon": 1.0, "delta": 0.25},
    "local-published": {"model": "local", "epsilon": 4.0, "delta": 1e-6},
    "shuffle": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 2, "honest_fraction": 0.6},
    "shuffle-published": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 2, "honest_fraction": 1.0},
}


def tables(changes: dict[str, Any] | None = None, trust: str = "none") -> dict[str, Any]:
    """The tables of a valid spec; ``changes`` maps dotted names to values, None removes a key."""
    data = deepcopy(_PLAIN)
    if trust != "none":
        data["privacy"] = dict(TRUST[trust])
    if trust.endswith("-published"):
        data["algorithm"] = {"name": "paper-5-dp-dpe"}
    for name, value in (changes or {}).items():
        *path, last = name.split(".")
        table = data
        for part in path:
            table = table.setdefault(part, {})
        if value is None:
            table.pop(last, None)
        else:
            table[last] = value
    return data


def phased_spec(changes: dict[str, Any] | None = None, trust: str = "none") -> PhasedSpec:
    """A valid phased spec under a trust model of `TRUST`, changed as in `tables`."""
    spec = parse_spec(tables(changes, trust))
    assert isinstance(spec, PhasedSpec)
    return spec
