"""The problems of paper 1's Section 4.1 and of its supplement, their sources, and the published regret."""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from typing_extensions import override

from privateer_core.algorithms import parse_spec
from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.environments.environment import Environment
from privateer_lab.environments.own_people import own_population
from privateer_papers.reproduction import Row


class Quadrants(Environment):
    """Two arms that change places from quadrant to quadrant of the unit square: on the whole neither is better."""

    def __init__(self, _spec: Spec) -> None:
        pass

    @override
    def contexts(self, _n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        return rng.random((n_participants, 2))

    @override
    def means(self, contexts: Array) -> Array:
        """Return 1/2 -+ sign((x1-1/2)(x2-1/2)) (1 - 4 max_j |((2 xj) mod 1)/2 - 1/4|)/2, shape (n, 2)."""
        sign = np.sign((contexts[:, 0] - 0.5) * (contexts[:, 1] - 0.5))
        tent = 1 - 4 * np.abs(((2 * contexts) % 1) / 2 - 0.25).max(axis=1)
        return np.stack([0.5 - 0.5 * sign * tent, 0.5 + 0.5 * sign * tent], axis=1)


class SquareProblem(NamedTuple):
    """Reward functions on the unit square, with uniform contexts."""

    population: Mapping[str, Any]
    arms: int
    reward: str  # what the authors' logs call them


OUR_ALGORITHM: Final = "partition"
PUBLISHED_ALGORITHM: Final = "paper-1-ldpmab"
"""Names of our algorithm for the paper's problem, and of the paper's."""
PAPER: Final = "published (leaks)"
LDPMAB: Final = "ldpmab"
"""The name of the baseline that is the authors' code made private."""
PRINTED: Final = "as printed"
"""The name in rows of Algorithms 1 and 2 as printed, which are private."""
PEAKS: Final = SquareProblem({"name": "peaks"}, 3, "exponential")
QUADRANTS: Final = SquareProblem(own_population(f"{__name__}:{Quadrants.__name__}"), 2, "symmetric")
"""The problems of Section 4.1, and of the supplement."""
NO_PRIVACY: Final = 1024.0
"""The epsilon that stands for no privacy in the paper."""


def build_instance(
    people: int,
    epsilon: float,
    sources: Sequence[Row] = (),
    algorithm: str = OUR_ALGORITHM,
    problem: SquareProblem = PEAKS,
) -> Spec:
    """Return an experiment on a problem with two features; `NO_PRIVACY` promises nothing."""
    promise = {"model": "local", "epsilon": epsilon}
    return build_spec(
        {"name": "paper-1", "arms": ["one", "two", "three"][: problem.arms], "horizon": people},
        ("x1", "x2"),
        promise if epsilon < NO_PRIVACY else {"model": "none"},
        sources,
        dict(problem.population),
        algorithm,
    )


def build_spec(
    table: Row,
    features: Sequence[str],
    privacy: Row,
    sources: Sequence[Row],
    population: Row,
    algorithm: str = OUR_ALGORITHM,
) -> Spec:
    """Return a spec in rounds of 100, with features in [0, 1]."""
    return parse_spec(
        {
            "experiment": {**table, "round_size": 100},
            "context": {"features": {name: {"low": 0.0, "high": 1.0} for name in features}},
            "privacy": privacy,
            "algorithm": {"name": algorithm},
            "sources": list(sources),
            "population": population,
        }
    )


def build_source(
    name: str, people: int, epsilon: float, gamma: float = 0.0, kappa: float = 1.0, problem: SquareProblem = PEAKS
) -> Row:
    """Return a source of a problem.

    gamma: the density of its people is proportional to ||x - 1/2||_inf^gamma.
    kappa: the share of each arm: 1 for equal shares, 0 for one arm that nobody played.
    """
    arms = problem.arms
    shares = kappa / arms + (2 - 2 * kappa) / (arms * (arms - 1)) * np.arange(arms)
    density = {"density": {"name": "shifted", "gamma": gamma}} if gamma else {}
    return {
        "name": name,
        "participants": people,
        "epsilon": min(epsilon, 16.0),
        "shares": shares.tolist(),
        "population": {**problem.population, **density},
    }


def build_two_sources(people: int, epsilon: float, gamma: float, kappa: float = 1.0) -> list[Row]:
    """Return two sources of this many people each: n_Qm is the size of the m-th data set (Section 3.1)."""
    return [build_source(name, people, epsilon, gamma, kappa) for name in ("one", "two")]


def read_published(
    path: str, experiment: str, problem: SquareProblem = PEAKS, /, **facts: Collection[Any]
) -> Iterator[Row]:
    """Yield the rows of an experiment in the summary of the paper's public logs; none without a path.

    facts: the values that a row may have, e.g. ``gamma=(0.0, 0.2)``.
    """
    if not path:
        return
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                if line["experiment"] != experiment or line["reward"] != problem.reward:
                    continue
                row = _parse_row(line)
                if all(row[name] in values for name, values in facts.items()):
                    yield row
    except (OSError, UnicodeDecodeError, KeyError, ValueError):
        raise SpecError(
            f"{path} is not the summary of paper 1's logs", field="--published", remedy="give it, or leave it out"
        ) from None


def _parse_row(line: dict[str, str]) -> Row:
    """Parse a line of the public logs into a row with this code's names."""
    return {
        "policy": PAPER,
        "published": True,
        "epsilon": float(line["eps"]),
        "eps_aux": line["eps_aux"],
        **{name: float(line[name]) for name in ("gamma", "kappa")},
        **{name: int(line[name]) for name in ("n", "n_aux", "M")},
        "regret": float(line["regret_mean"]),
        "ci95": float(line["regret_ci95"]),
    }
