"""A reproduction: runs to make, a figure of them, and a verdict computed from them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import play_once
from privateer_lab.pages.plots import COLOURS
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulate import simulate_once
from privateer_lab.simulation.summary import interval

Row = dict[str, Any]
OURS: Final = "privateer"


class Rows(list[Row]):
    """Tidy rows of facts and figures; the fact ``published`` marks those that were read and not made."""

    def where(self, **facts: Any) -> "Rows":
        """Return the rows that have these facts."""
        return Rows(row for row in self if all(row.get(name) == value for name, value in facts.items()))

    def by(self, *facts: str) -> "dict[tuple[Any, ...], Rows]":
        """Return the rows by their values of these facts."""
        groups: dict[tuple[Any, ...], Rows] = {}
        for row in self:
            groups.setdefault(tuple(row.get(fact) for fact in facts), Rows()).append(row)
        return groups

    def values(self, fact: str) -> list[Any]:
        """Return the distinct values of a fact, in order."""
        return sorted({row[fact] for row in self if fact in row})

    def mean(self, figure: str = "regret") -> tuple[float, float]:
        """Return the mean of a figure and half its 95 % interval; a published row has its own."""
        if not self:
            raise LookupError(f"no rows with {figure}")
        if self[0].get("published"):
            return float(self[0][figure]), float(self[0]["ci95"])
        values = np.array([row[figure] for row in self])
        return float(values.mean()), interval(values) or 0.0

    def curve(self, fact: str, figure: str = "regret") -> tuple[list[Any], NDArray[np.float64]]:
        """Return the n values of a fact, and the mean of a figure with half its interval at each, shape (2, n)."""
        at = self.values(fact)
        return at, np.array([self.where(**{fact: value}).mean(figure) for value in at]).reshape(-1, 2).T


@dataclass(frozen=True)
class Effort:
    """The part of a reproduction that is run."""

    quick: bool = False  # whether a small version, which shows the same, is enough
    seeds: int = 10  # runs of each case
    jobs: int | None = None
    backend: Backend = "processes"
    # paths of data, separated by commas, by the option that names them
    data: Mapping[str, str] = field(default_factory=dict)

    def given(self, made: "Reproduction") -> dict[str, str]:
        """Return the paths of the data that a reproduction reads, by the option that names them."""
        return {name: self.data[name] for name in (made.needs, *made.reads) if name in self.data}

    def without(self, options: Collection[str]) -> "Effort":
        """Return the same without the data that these options name."""
        return replace(self, data={name: path for name, path in self.data.items() if name not in options})


class Compared(NamedTuple):
    """A line of a page's table: what the paper prints, what its algorithm makes here, and what ours makes.

    What does not exist is empty.
    """

    what: str
    published: str = ""
    run_here: str = ""
    ours: str = ""


def nothing(_rows: Rows) -> list[str]:
    """Return no warnings."""
    return []


@dataclass(frozen=True)
class Reproduction:
    """One figure or table of a paper.

    Like ``draw``, the functions ``verdict``, ``sentence``, ``compared`` and ``warnings`` of rows raise an
    ArithmeticError, a LookupError or a ValueError where rows are too few.
    """

    name: str  # ``paper-``, the paper's number, and what it is there
    title: str
    rows: Callable[[Effort], Iterator[Row]]  # makes tidy rows, and gives them as they come
    draw: Callable[[str, Rows], Figure]  # draws rows under a title, with the paper's axes
    verdict: Callable[[Rows], str]  # says what rows show, in a paragraph
    sentence: Callable[[Rows], str]  # says it in one sentence
    compared: Callable[[Rows], list[Compared]]  # the lines of a table: as published, run here, ours
    minutes: int  # how long it takes with ten seeds on two cores, about; the small version takes less than one
    needs: str = ""  # the option that names the data without which it does not run; empty if it needs none
    reads: tuple[str, ...] = ()  # options that name data which it draws beside its own
    # what is said before all else: where ours does not keep what the paper promises
    warnings: Callable[[Rows], list[str]] = nothing

    @property
    def paper(self) -> int:
        """The paper's number."""
        return int(self.name.split("-")[1])


def told(rows: Rows, figure: str = "regret", digits: str = ",.0f", scale: float = 1.0) -> str:
    """Write the mean of a figure with half its interval; nothing where there are no rows.

    digits: how numbers are written, as ``format`` takes it.
    scale: what mean and interval are divided by.
    """
    if not rows:
        return ""
    mean, half = (value / scale for value in rows.mean(figure))
    return f"{mean:{digits}}" + (f" ± {half:{digits}}" if half else "")


@dataclass(frozen=True)
class ReproductionCase:
    """A setting that is simulated, and who plays beside it."""

    facts: Row  # what the rows say of it
    spec: Spec  # what is simulated, under the name ``policy`` of ``facts`` or else `OURS`
    baselines: tuple[str, ...] = ()  # names of the policies that play beside it

    def play(self, seed: int) -> list[Row]:
        """Return a row for the experiment, and one for each baseline."""
        own = simulate_once(self.spec, seed)
        figures = {"regret": own.regret, "uniform": own.uniform_regret, "reward": own.reward}
        others = play_once(self.spec, list(self.baselines), seed) if self.baselines else []
        return [
            {"policy": OURS, **self.facts, "seed": seed, **figures},
            *(
                {**self.facts, "policy": run.name, "seed": seed, "regret": run.regret, "reward": run.reward}
                for run in others
            ),
        ]


def run(cases: Sequence[ReproductionCase], effort: Effort) -> Iterator[Row]:
    """Give a row for each case, policy and seed, as they come."""
    tasks = [(case, seed) for seed in range(effort.seeds) for case in cases]
    for rows in each(ReproductionCase.play, tasks, effort.jobs, effort.backend):
        yield from rows


def lines(
    axis: Any, rows: Rows, fact: str, groups: Sequence[tuple[Row, str]], style: str = "-", *, band: bool = False
) -> None:
    """Draw mean regret against a fact, with its interval as a ``band``.

    Each group of rows, given by its facts and its label, is a line of its own colour. The legend has solid lines only.
    """
    for colour, (facts, label) in zip(COLOURS, groups, strict=False):
        at, (middle, half) = rows.where(**facts).curve(fact)
        shape = style if len(at) > 1 else "." + style.lstrip(".")  # a line of one point would not be seen
        axis.plot(at, middle, shape, color=colour, label=label if style in ("-", ".-") else None)
        if band:
            axis.fill_between(at, middle - half, middle + half, color=colour, alpha=0.12, linewidth=0)
