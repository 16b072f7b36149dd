"""Reproductions: their runs, their figure, and the verdict computed from them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from matplotlib.figure import Figure

from privateer_core.arrays import Array
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import Baseline, as_arms_spec, play_once, play_together
from privateer_lab.render.pictures import COLOURS
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.simulate import half_width_95, simulate_once

Row = dict[str, Any]
Result = TypeVar("Result")
OURS: Final = "privateer"


class Rows(list[Row]):
    """Tidy rows of facts and figures; the fact ``published`` marks those that were read and not made."""

    def where(self, **facts: Any) -> "Rows":
        """Return the rows that have these facts."""
        return Rows(row for row in self if all(row.get(name) == value for name, value in facts.items()))

    def group_by(self, *facts: str) -> "dict[tuple[Any, ...], Rows]":
        """Return the rows by their values of these facts."""
        groups: dict[tuple[Any, ...], Rows] = {}
        for row in self:
            groups.setdefault(tuple(row.get(fact) for fact in facts), Rows()).append(row)
        return groups

    def values(self, fact: str) -> list[Any]:
        """Return the distinct values of a fact, in order."""
        return sorted({row[fact] for row in self if fact in row})

    def mean(self, figure: str = "regret") -> tuple[float, float]:
        """Return the mean of a figure and the half width of its 95 % interval; a published row has its own."""
        if not self:
            raise LookupError(f"no rows with {figure}")
        if self[0].get("published"):
            return float(self[0][figure]), float(self[0]["ci95"])
        x = np.array([row[figure] for row in self])
        return float(x.mean()), half_width_95(x) or 0.0

    def curve(self, fact: str, figure: str = "regret") -> tuple[list[Any], Array]:
        """Return the n values of a fact, and the mean and half width of a figure at each, shape (2, n)."""
        x = self.values(fact)
        return x, np.array([self.where(**{fact: value}).mean(figure) for value in x]).reshape(-1, 2).T


@dataclass(frozen=True)
class Effort:
    """The extent of a reproduction: its version, seeds, processes and data."""

    quick: bool = False  # whether a small version, which shows the same, is enough
    seeds: int = 10  # runs of each case
    jobs: int | None = None
    backend: Backend = "processes"
    # paths of data, separated by commas, by the option that names them
    data: Mapping[str, str] = field(default_factory=dict)

    def select_data(self, reproduction: "Reproduction") -> dict[str, str]:
        """Return the paths of the data that a reproduction reads, by the option that names them."""
        return {name: self.data[name] for name in (reproduction.needs, *reproduction.reads) if name in self.data}

    def play(self, run: Callable[..., Result], settings: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the results of runs of all settings with each seed, the last argument, seed by seed."""
        cases = list(settings)
        return self.run_in_order(run, [(*setting, seed) for seed in range(self.seeds) for setting in cases])

    def run_in_order(self, run: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the results of ``run(*task)`` in the order of tasks, so that rows are the same on every machine."""
        numbered_tasks = [(run, number, *task) for number, task in enumerate(tasks)]
        results: dict[int, Result] = {}
        n_yielded = 0
        for number, result in run_tasks(_run_numbered, numbered_tasks, self.jobs, self.backend):
            results[number] = result
            while n_yielded in results:
                yield results.pop(n_yielded)
                n_yielded += 1

    def without(self, options: Collection[str]) -> "Effort":
        """Return the effort without the data of these options."""
        return replace(self, data={name: path for name, path in self.data.items() if name not in options})


class TableLine(NamedTuple):
    """A line of a comparison: the printed figure, the figure of the paper's algorithm run here, and ours.

    A figure that does not exist is empty.
    """

    what: str
    published: str = ""
    run_here: str = ""
    ours: str = ""

    @property
    def text(self) -> str:
        """The line in words."""
        figures = {"published": self.published, "run here": self.run_here, "ours": self.ours}
        return f"{self.what}: {'; '.join(f'{name} {figure}' for name, figure in figures.items() if figure)}"


def _run_numbered(run: Callable[..., Result], number: int, *task: Any) -> tuple[int, Result]:
    return number, run(*task)


def no_texts(_rows: Rows) -> list[str]:
    """Return no warnings and no remarks."""
    return []


@dataclass(frozen=True)
class Reproduction:
    """One figure or table of a paper.

    Like ``draw``, the functions ``sentence``, ``compared``, ``warnings`` and ``remarks`` of rows raise an
    ArithmeticError, a LookupError or a ValueError where rows are too few.
    """

    name: str  # ``paper-``, the paper's number, and what it is there
    title: str
    rows: Callable[[Effort], Iterator[Row]]  # makes tidy rows, and gives them as they come
    draw: Callable[[str, Rows], Figure]  # draws rows under a title, with the paper's axes
    sentence: Callable[[Rows], str]  # says what rows show
    compared: Callable[[Rows], list[TableLine]]  # the lines of a table: as published, run here, ours
    minutes: int  # how long it takes with ten seeds on two cores, about; the small version takes less than one
    needs: str = ""  # the option that names the data without which it does not run; empty if it needs none
    reads: tuple[str, ...] = ()  # options that name data which it draws beside its own
    # what is said before all else: where ours does not keep what the paper promises
    warnings: Callable[[Rows], list[str]] = no_texts
    remarks: Callable[[Rows], list[str]] = no_texts  # what neither the sentence nor the table has

    def verdict(self, rows: Rows) -> str:
        """Say what rows show: the sentence, remarks, and the lines of the table."""
        return "\n".join([self.sentence(rows), *self.remarks(rows), *(line.text for line in self.compared(rows))])

    @property
    def paper(self) -> int:
        """The paper's number."""
        return int(self.name.split("-")[1])


def mean_text(rows: Rows, figure: str = "regret", digits: str = ",.0f", scale: float = 1.0) -> str:
    """Format the mean of a figure with the half width of its interval; empty without rows.

    digits: the format of numbers, as ``format`` takes it.
    scale: the divisor of mean and interval.
    """
    if not rows:
        return ""
    mean, half_width = (value / scale for value in rows.mean(figure))
    return f"{mean:{digits}}" + (f" ± {half_width:{digits}}" if half_width else "")


@dataclass(frozen=True)
class ReproductionCase:
    """A simulated setting, with the baselines that play on the same participants."""

    facts: Row  # what the rows say of it
    spec: Spec  # what is simulated, under the name ``policy`` of ``facts`` or else `OURS`
    baselines: tuple[str, ...] = ()  # names of the policies that play beside it

    def play(self, seed: int) -> list[Row]:
        """Return a row for the experiment, and a row for each baseline."""
        result = simulate_once(self.spec, seed)
        figures = {"regret": result.regret, "uniform": result.uniform_regret, "reward": result.reward}
        baseline_runs = play_once(self.spec, list(self.baselines), seed) if self.baselines else []
        return [{"policy": OURS, **self.facts, "seed": seed, **figures}] + [
            {**self.facts, "policy": run.name, "seed": seed, "regret": run.regret, "reward": run.reward}
            for run in baseline_runs
        ]


@dataclass(frozen=True)
class BaselineCase(ReproductionCase):
    """A simulated setting in which a baseline without an entry point plays alone, under the name in ``facts``."""

    baseline: Callable[[ArmsSpec, int], Baseline] = Baseline

    def play(self, seed: int) -> list[Row]:
        """Return the row of the baseline."""
        spec = as_arms_spec(self.spec)
        (run,) = play_together(spec, {str(self.facts["policy"]): self.baseline(spec, seed)}, seed)
        return [{**self.facts, "seed": seed, "regret": run.regret, "reward": run.reward}]


def _play_case(case: ReproductionCase, seed: int) -> list[Row]:
    return case.play(seed)


def run_cases(cases: Sequence[ReproductionCase], effort: Effort) -> Iterator[Row]:
    """Yield a row for each case, policy and seed, seed by seed."""
    for rows in effort.play(_play_case, ((case,) for case in cases)):
        yield from rows


def draw_lines(
    axis: Any, rows: Rows, fact: str, groups: Sequence[tuple[Row, str]], style: str = "-", *, band: bool = False
) -> None:
    """Draw mean regret against a fact, with its interval as a ``band``.

    Each group of rows, given by its facts and its label, is a line of a colour. The legend has solid lines alone.
    """
    for colour, (facts, label) in zip(COLOURS, groups, strict=False):
        x, (means, widths) = rows.where(**facts).curve(fact)
        line_style = style if len(x) > 1 else "." + style.lstrip(".")  # a line of one point would not be seen
        axis.plot(x, means, line_style, color=colour, label=label if style in ("-", ".-") else None)
        if band:
            axis.fill_between(x, means - widths, means + widths, color=colour, alpha=0.12, linewidth=0)
