"""What a reproduction is: runs to make, a figure of them, and a verdict computed from them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from matplotlib.figure import Figure

from privateer.experiment import Spec, parse_spec
from privateer_lab.baselines.run import play_once
from privateer_lab.interval import interval
from privateer_lab.parallel import Backend, each
from privateer_lab.simulation import simulate_once

Row = dict[str, Any]
OURS: Final = "privateer"


@dataclass(frozen=True)
class Case:
    """One setting: its name in rows, the spec, and the references that play beside it.

    Attributes
    ----------
    facts
        What the rows say of it.
    spec
        What is simulated, under the name ``policy`` of ``facts`` or else `OURS`.
    references
        As `privateer_lab.baselines` names them; without it the spec alone is run.
    own
        Whether the spec itself is run.
    """

    facts: Row
    spec: Spec
    baselines: tuple[str, ...] = ()
    own: bool = True


@dataclass(frozen=True)
class Effort:
    """How much is run.

    Attributes
    ----------
    quick
        A small version that shows the same, for checks.
    seeds
        Runs of each case.
    published, adult
        Files with the published figures, and the UCI Adult data, separated by commas; empty without.
    """

    quick: bool = False
    seeds: int = 10
    jobs: int | None = None
    backend: Backend = "processes"
    published: str = ""
    adult: str = ""


class Reproduction(Protocol):
    """One figure or table of a paper."""

    name: str
    title: str

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Tidy rows as they come; ``published`` marks those that were read and not made."""
        ...

    def draw(self, rows: list[Row]) -> Figure:
        """The figure, with the paper's axes."""
        ...

    def verdict(self, rows: list[Row]) -> str:
        """What the rows show, in a paragraph."""
        ...


@dataclass(frozen=True)
class Instance:
    """The problem of paper 1, Section 4.1: three arms, two features, rounds of 100.

    Attributes
    ----------
    people, epsilon
        Of the experiment; 1024, which the paper takes for no privacy, is none here.
    calibration
        ``tight`` or ``published``.
    sources
        Sections of a spec.
    """

    people: int
    epsilon: float
    calibration: str = "tight"
    sources: Sequence[Row] = field(default=())

    @property
    def spec(self) -> Spec:
        """As a spec."""
        private = self.epsilon < 1024
        promise = {"model": "local", "epsilon": self.epsilon, "calibration": self.calibration}
        return parse_spec(
            {
                "experiment": {
                    "name": "paper-1",
                    "arms": ["one", "two", "three"],
                    "horizon": self.people,
                    "round_size": 100,
                },
                "context": {"features": {name: {"low": 0.0, "high": 1.0} for name in ("x1", "x2")}},
                "privacy": promise if private else {"model": "none"},
                "algorithm": {"name": "partition"},
                "sources": list(self.sources),
                "population": {"name": "peaks"},
            }
        )


def source(name: str, people: int, epsilon: float, gamma: float = 0.0, kappa: float = 1.0) -> Row:
    """A source of paper 1, Section 4.1: density proportional to ||x - 1/2||_inf^gamma, arms in shares by kappa."""
    arms = 3
    shares = kappa / arms + (2 - 2 * kappa) / (arms * (arms - 1)) * np.arange(arms)
    density = {"name": "shifted", "gamma": gamma} if gamma else {"name": "uniform"}
    told = {"name": name, "people": people, "epsilon": min(epsilon, 16.0), "shares": shares.tolist()}
    return {**told, "population": {"name": "peaks", "density": density}}


def run(cases: Sequence[Case], effort: Effort) -> Iterator[Row]:
    """A row for each case, policy and seed."""
    for rows in each(
        _play, [(case, seed) for seed in range(effort.seeds) for case in cases], effort.jobs, effort.backend
    ):
        yield from rows


def _play(case: Case, seed: int) -> list[Row]:
    found = []
    if case.own:
        own = simulate_once(case.spec, seed)
        figures = {"regret": own.regret, "uniform": own.uniform_regret, "reward": own.reward}
        found.append({"policy": OURS, **case.facts, "seed": seed, **figures})
    others = play_once(case.spec, list(case.baselines), seed) if case.baselines else []
    found += [
        {**case.facts, "policy": run.name, "seed": seed, "regret": run.regret, "reward": run.reward} for run in others
    ]
    return found


def mean(rows: list[Row], figure: str = "regret", **facts: Any) -> tuple[float, float]:
    """Mean and 95 % interval of a figure over the rows with these facts; published rows bring their own."""
    chosen = [row for row in rows if all(row.get(name) == value for name, value in facts.items())]
    if not chosen:
        return float("nan"), float("nan")
    if chosen[0].get("published"):
        return float(chosen[0][figure]), float(chosen[0]["ci95"])
    values = np.array([row[figure] for row in chosen])
    return float(values.mean()), interval(values) or 0.0


def in_thousands(axis: Any) -> None:
    """Write the ticks of an axis of people as 20k."""
    axis.xaxis.set_major_formatter(lambda people, _: f"{people / 1000:g}k")


def known(*figures: float) -> bool:
    """Whether there were rows for each of these means."""
    return all(math.isfinite(figure) for figure in figures)


def values(rows: list[Row], fact: str, **facts: Any) -> list[Any]:
    """Distinct values of a fact among the rows with these facts, in order."""
    chosen = {row[fact] for row in rows if fact in row and all(row.get(name) == value for name, value in facts.items())}
    return sorted(chosen)
