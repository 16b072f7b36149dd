"""Experiments that the dashboard shows: one of every shape."""

from typing import Any, Final, NamedTuple

HOSTILE: Final = "<img src=x onerror=window.hurt=1>"
"""What a page that takes text for HTML would run."""
_NUMBERS: Final = {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}
_LOCAL: Final = {"model": "local", "epsilon": 8.0}


class Experiment(NamedTuple):
    """The tables of a spec, and how many people report."""

    tables: dict[str, Any]
    people: int


def _experiment(name: str, people: int, horizon: int, **sections: Any) -> Experiment:
    about = {"name": name, "horizon": horizon, **sections.pop("experiment", {})}
    return Experiment({"experiment": about, "privacy": _LOCAL} | sections, people)


def _arms(*names: str, size: int = 200) -> dict[str, Any]:
    return {"arms": list(names), "round_size": size}


EXPERIMENTS: Final = {
    "plane": _experiment(
        *("plane", 4500, 8000),
        experiment=_arms("left", "middle", "right", size=500),
        context={"features": _NUMBERS},
        algorithm={"name": "partition"},
        population={"name": "peaks"},
    ),
    "levels": _experiment(
        *("levels", 1000, 3000),
        experiment=_arms("a", "b", size=250),
        context={
            "features": {
                HOSTILE: {"levels": [HOSTILE, "DE", "FR"]},
                "hours": {"low": 0.0, "high": 80.0, "missing": True},
                "premium": {"boolean": True},
            }
        },
        algorithm={"name": "partition"},
        population={"name": "mixed"},
    ),
    "offers": _experiment(
        *("offers", 3000, 6000),
        experiment=_arms(*"abcdefghij", size=500),
        algorithm={"name": "bandit"},
        population={"name": "bernoulli"},
    ),
    "shop": _experiment(
        *("shop", 4000, 6000),
        experiment=_arms("control", "gentle", "bold", size=500),
        context={"features": {"group": {"levels": [HOSTILE, "b"]}}},
        segments={"features": ["group"]},
        algorithm={"name": "trial", "guardrails": ["refund"]},
        population={
            "name": "effects",
            "by": "group",
            "effects": {"bold": [0.3, -0.2]},
            "guardrails": {"refund": {"base": 0.1, "effects": {"bold": 0.05}}},
        },
    ),
    "phases": Experiment(
        {
            "experiment": {"name": "phases", "horizon": 20_000, "participants": 3000},
            "actions": {"count": 12, "dimension": 3, "seed": 1},
            "reward": {"low": -1.0, "high": 1.0},
            "privacy": {"model": "none"},
            "algorithm": {"name": "phased", "alpha": 0.8},
            "population": {"name": "linear"},
        },
        3000,
    ),
    "numbers": _experiment(
        *("numbers", 600, 2000),
        experiment=_arms("a", "b"),
        context={"features": _NUMBERS},
        algorithm={"name": "linear"},
        population={"name": "disjoint"},
    ),
    "parcels": _experiment(
        *("parcels", 450, 2000),
        experiment=_arms("a", "b", "c"),
        context={"features": _NUMBERS},
        privacy={"model": "shuffle", "epsilon": 2.0, "delta": 1e-6, "min_batch": 100, "local_epsilon_max": 8.0},
        algorithm={"name": "partition"},
        population={"name": "peaks"},
    ),
    "begun": _experiment(
        *("begun", 50, 2000),
        experiment=_arms("a", "b"),
        context={"features": {"x1": {"low": 18.0, "high": 99.0}}},
        algorithm={"name": "partition"},
        population={"name": "mixed", "function": 1},
    ),
}
