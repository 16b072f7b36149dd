"""Paper 2, Table 1: how regret grows with the number of people, beside the paper's exponents.

Two points are compared without noise between them, as the paper has it, and with some. Noise of their own makes two
points worth one whose range is that noise (Shamir 2013), so that the paper's exponents cannot hold there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, cast

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms import parse_spec
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import Baseline
from privateer_lab.baselines.run import play_together
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, draw_growth, scale_growth, slope
from privateer_papers.paper_2.contextual import PublishedGeneralized, PublishedLinear
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows

KINDS: Final = ("tight", "published")
_EPSILON: Final = 1.0
_DELTA: Final = 1e-5
"""The delta of published reports; tight ones promise epsilon alone."""
_PEOPLE: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000)
_FEW_PEOPLE: Final = (10_000, 30_000, 100_000)
_ROUNDS: Final = 1000
_FEW_ROUNDS: Final = 500
"""Rounds of a run: their people are a share of the horizon, so that what rounds cost does not bend the slope."""
_DEVIATIONS: Final = (0.01, 0.1)
"""Standard deviations of what people measure, of rewards that span 1.5 or 2."""
_PUBLISHED_ROUND_MAX: Final = 100
"""People who share one direction as published; the paper's rounds have one person."""


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    exponent: float  # the paper's, of T, without logarithms and constants
    tables: dict[str, Any]  # the sections of the spec but for people, rounds and promise
    # what plays as published; None: the paper's algorithm of the same name does
    literal: Callable[[ArmsSpec, int], Baseline] | None = None
    # the least exponent that there can be, where people measure with noise; None: the paper's may be reached
    least: float | None = None

    @property
    def promised(self) -> str:
        """The paper's exponent in words, and the least that can be if that is larger."""
        names = {3 / 4: "3/4", 2 / 3: "2/3", 1 / 2: "1/2", 0: "0 (log T)"}
        return names[self.exponent] + (f", at least {names[self.least]} with noise" if self.least is not None else "")

    def spec(self, people: int, rounds: int, *, published: bool) -> Spec:
        """Return the experiment for so many people, in about so many rounds."""
        table = {"name": "slopes", "horizon": people, "round_size": people // rounds, **self.tables["experiment"]}
        promise: Row = {"model": "local", "epsilon": _EPSILON}
        if published:
            table |= {"round_size": min(people // rounds, _PUBLISHED_ROUND_MAX), "round_growth": 0.0}
            promise |= {"delta": _DELTA}
        algorithm = dict(self.tables["algorithm"])
        if published and not self.literal:
            algorithm["name"] = f"paper-2-{algorithm['name']}"
            algorithm.pop("deviation", None)  # the paper knows of none
        return parse_spec({**self.tables, "experiment": table, "privacy": promise, "algorithm": algorithm})


def _points(loss: str, lowest: float, **algorithm: Any) -> dict[str, Any]:
    """Return a spec about a ball in three dimensions, whose points people measure as exactly as the algorithm knows."""
    return {
        "experiment": {},
        "domain": {"shape": "ball", "dimension": 3},
        "reward": {"low": lowest, "high": 0.0},
        "algorithm": {"name": "convex", **algorithm},
        "population": {"name": "losses", "loss": loss, "deviation": algorithm.get("deviation", 0.0)},
    }


def _contexts(**link: str) -> dict[str, Any]:
    """Return a spec of two arms and four features, with rounds that grow as in the examples."""
    return {
        "experiment": {"arms": ["a", "b"], "round_growth": 0.3},
        "context": {"features": {f"x{i}": {"low": -1.0, "high": 1.0} for i in range(1, 5)}},
        "algorithm": {"name": "linear", **link},
        "population": {"name": "disjoint", **link},
    }


_ONE: Final = {"feedback": "one-point"}
_TWO: Final = {"feedback": "two-point"}
_SHRINKING: Final = {"estimator": "ellipsoid"}
_CURVED: Final = {"strong_convexity": 1.0}
LINES: Final = {
    "BCO, convex": Line(3 / 4, _points("absolute", -2.0, **_ONE, lipschitz=1.0)),
    "BCO, convex and smooth": Line(2 / 3, _points("quadratic", -1.5, **_ONE, **_SHRINKING, smoothness=1.0)),
    "BCO, strongly convex": Line(2 / 3, _points("quadratic", -1.5, **_ONE, **_CURVED, lipschitz=1.5)),
    "BCO, strongly convex and smooth": Line(1 / 2, _points("quadratic", -1.5, **_ONE, **_SHRINKING, **_CURVED)),
    "two points, convex": Line(1 / 2, _points("absolute", -2.0, **_TWO, lipschitz=1.0)),
    "two points, strongly convex": Line(0, _points("quadratic", -1.5, **_TWO, **_CURVED, lipschitz=1.5)),
    **{
        f"two points, convex, deviation {noise:g}": Line(
            1 / 2, _points("absolute", -2.0, **_TWO, lipschitz=1.0, deviation=noise), least=3 / 4
        )
        for noise in _DEVIATIONS
    },
    **{
        f"two points, strongly convex, deviation {noise:g}": Line(
            0, _points("quadratic", -1.5, **_TWO, **_CURVED, lipschitz=1.5, deviation=noise), least=1 / 2
        )
        for noise in _DEVIATIONS
    },
    "contextual linear": Line(3 / 4, _contexts(), PublishedLinear),
    "generalized linear": Line(3 / 4, _contexts(link="logistic"), PublishedGeneralized),
}


def play(row: str, kind: str, people: int, rounds: int, seed: int) -> Row:
    """Return the regret of one run, and that of decisions at random."""
    line, published = LINES[row], kind == "published"
    spec = line.spec(people, rounds, published=published)
    facts = {"row": row, "kind": kind, "people": people, "seed": seed}
    if published and line.literal:
        arms = cast(ArmsSpec, spec)
        (run,) = play_together(arms, {row: line.literal(arms, seed)}, seed)
        return {**facts, "regret": run.regret}
    found = simulate_once(spec, seed)
    return {**facts, "regret": found.regret, "uniform": found.uniform_regret}


def _rows(effort: Effort) -> Iterator[Row]:
    horizons, rounds = (_FEW_PEOPLE, _FEW_ROUNDS) if effort.quick else (_PEOPLE, _ROUNDS)
    settings = product(range(effort.seeds), horizons, LINES, KINDS)
    tasks = [(row, kind, people, rounds, seed) for seed, people, row, kind in settings]
    yield from each(play, tasks, effort.jobs, effort.backend)


def verdict(rows: Rows) -> str:
    """Say how fast each row's regret grows, and how it compares with the paper's exponent and with chance."""
    last = rows.values("people")[-1]
    said = [
        f"Slopes of log regret in log T from T = {rows.values('people')[0]:,} to {last:,}, local epsilon {_EPSILON:g} "
        f"(published: delta {_DELTA:g}); in brackets regret over that of decisions at random at the last T."
    ]
    for name, line in LINES.items():
        uniform, found = rows.where(row=name, kind="tight", people=last).mean("uniform")[0], []
        for kind in KINDS:
            own = rows.where(row=name, kind=kind)
            found_slope, share = slope(own), own.where(people=last).mean()[0] / uniform
            found.append(f"{kind} {found_slope}, {found_slope.beside(line.exponent)} the paper's ({share:.2g})")
        said.append(f"{name}: paper {line.promised}; {'; '.join(found)}.")
    return "\n".join(said)


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(LINES), title)
    for axis, (name, line) in zip(axes, LINES.items(), strict=True):
        own = rows.where(row=name)
        for colour, kind in zip(COLOURS, KINDS, strict=False):
            label = f"{kind}: {slope(own.where(kind=kind))}"
            at, middle = draw_growth(axis, own.where(kind=kind), "people", label, colour)
            if kind == "tight":
                paper = middle[0] * (np.array(at) / at[0]) ** line.exponent
                axis.plot(at, paper, "--", color="#555555", label=f"paper: {line.promised}")
        at, (chance, _) = own.where(kind="tight").curve("people", "uniform")
        axis.plot(at, chance, ":", color="#555555", label="at random: 1")
        scale_growth(axis, name, "people, T")
    axes[0].set_ylabel("regret")
    return figure


def _slopes(rows: Rows, kind: str) -> dict[str, Slope]:
    return {name: slope(rows.where(row=name, kind=kind)) for name in LINES}


def _sentence(rows: Rows) -> str:
    above = [sum(found.is_above(LINES[name].exponent) for name, found in _slopes(rows, kind).items()) for kind in KINDS]
    return (
        f"Regret grows faster than the paper's exponent in {above[0]} of {len(LINES)} rows of ours, and in {above[1]} "
        "of the algorithms as published."
    )


def _warnings(rows: Rows) -> list[str]:
    """Say where the slope of ours is above the paper's by more than two standard errors."""
    return [
        f"{name}: our regret grows with T to the {found}, the paper's with {LINES[name].promised}."
        for name, found in _slopes(rows, "tight").items()
        if found.is_above(LINES[name].exponent)
    ]


def _compared(rows: Rows) -> list[Compared]:
    found = {kind: _slopes(rows, kind) for kind in KINDS}
    return [
        Compared(f"{name}, exponent of T", line.promised, *(str(found[kind][name]) for kind in reversed(KINDS)))
        for name, line in LINES.items()
    ]


SLOPES: Final = Reproduction(
    "paper-2-table-1",
    "Paper 2, Table 1: slopes of regret",
    _rows,
    _draw,
    verdict,
    _sentence,
    _compared,
    minutes=60,
    warnings=_warnings,
)
