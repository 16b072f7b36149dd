"""Paper 1, Table 2, a part for each data set: reward relative to a tree that knows everything (ABSE)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import BASELINES, with_arms
from privateer_lab.baselines.run import play_together
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_1.real_data.descent import SourcedLinear, SourcedNetwork
from privateer_papers.paper_1.real_data.people import ADULT, FEATURES, JOBS, TAXI, Cohorts, PublicData
from privateer_papers.paper_1.real_data.printed import METHODS, PARTS, PRINTED, PRINTED_RANK_SUMS, PROMISES
from privateer_papers.paper_1.real_data.ranks import outstanding, rank_sums
from privateer_papers.paper_1.setting import OURS as OUR_ALGORITHM
from privateer_papers.paper_1.setting import THEIRS as THEIR_ALGORITHM
from privateer_papers.paper_1.setting import in_hundreds
from privateer_papers.reproduction import OURS, Compared, Effort, Reproduction, Row, Rows

_HELPED: Final = f"{OURS}, with"
_ABSE: Final = "ABSE"
_QUICK: Final = 4000
_NAMES: Final = dict(zip(METHODS[1::2], METHODS[::2], strict=True))
"""Each method without sources, and with them."""


@dataclass(frozen=True)
class TableCase:
    """A setting of the table: the first people of the target, or all; and epsilons of these and of the sources."""

    cohorts: Cohorts
    part: str
    people: int
    epsilon: float
    aux: float

    def spec(self, algorithm: str, *, helped: bool) -> Spec:
        """Return the experiment on this part of the people, with sources or without; 1 for the right class."""
        sources = [
            {
                "name": name,
                "people": count,
                "epsilon": self.aux,
                "shares": [0.5, 0.5],
                "population": Cohorts.population(path),
            }
            for name, (path, count) in self.cohorts.sources.items()
        ]
        return in_hundreds(
            {"name": "table-2", "arms": ["no", "yes"], "horizon": self.people},
            FEATURES,
            {"model": "local", "epsilon": self.epsilon},
            sources if helped else [],
            Cohorts.population(self.cohorts.target[0]),
            algorithm,
        )

    def play(self, seed: int) -> list[Row]:
        """Return a row for each method, without sources and with them, ours beside; and for ABSE."""
        alone, helped = (with_arms(self.spec(OUR_ALGORITHM, helped=kind)) for kind in (False, True))
        linear, network = METHODS[3], METHODS[5]
        made: dict[str, Any] = {
            _ABSE: BASELINES["abse"](alone, seed),
            linear: BASELINES["linear"](alone, seed),
            network: BASELINES["network"](alone, seed),
            _NAMES[linear]: SourcedLinear(helped, seed),
            _NAMES[network]: SourcedNetwork(helped, seed),
        }
        rewards = {run.name: run.reward for run in play_together(alone, made, seed)}
        for algorithm, names in ((THEIR_ALGORITHM, METHODS[1::-1]), (OUR_ALGORITHM, (OURS, _HELPED))):
            for name, kind in zip(names, (False, True), strict=True):
                rewards[name] = simulate_once(self.spec(algorithm, helped=kind), seed).reward
        facts = {"epsilon": self.epsilon, "eps_aux": self.aux, "part": self.part, "seed": seed}
        return [{**facts, "policy": name, "reward": reward} for name, reward in rewards.items()]


def _cells(rows: Rows) -> list[tuple[tuple[float, float], str]]:
    """Return promises and parts that rows are of."""
    return [((epsilon, aux), part) for epsilon, aux in sorted(rows.by("epsilon", "eps_aux")) for part in PARTS]


def _of(rows: Rows, promise: tuple[float, float], part: str) -> Rows:
    return rows.where(epsilon=promise[0], eps_aux=promise[1], part=part)


def ratios(rows: Rows) -> dict[str, float]:
    """Return each policy's mean reward over ABSE's, in one cell of the table."""
    means = {policy: rows.where(policy=policy).mean("reward")[0] for (policy,) in rows.by("policy")}
    return {policy: mean / means[_ABSE] for policy, mean in means.items() if policy != _ABSE}


def best_of(rows: Rows) -> str | None:
    """Return which of the paper's six methods is significantly better than the five others in one cell, if any is."""
    paired = {name: sorted(rows.where(policy=name), key=lambda row: row["seed"]) for name in METHODS}
    return outstanding({name: [row["reward"] for row in own] for name, own in paired.items()})


def _listed(values: Any) -> str:
    return ", ".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Table2:
    """The rows of the table that are about some data."""

    data: PublicData
    minutes: int = 10

    @property
    def reproduction(self) -> Reproduction:
        """What makes them again."""
        return Reproduction(
            "paper-1-table-2" + ("" if self.data is ADULT else f"-{self.data.name.lower()}"),
            f"Paper 1, Table 2, {self.data.name}: reward relative to ABSE",
            self.rows,
            self.draw,
            self.verdict,
            self.sentence,
            self.compared,
            minutes=self.minutes,
            needs=self.data.option,
        )

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Give a row for each method, run and cell of the table."""
        promises = PROMISES[:1] if effort.quick else PROMISES
        with TemporaryDirectory() as folder:
            cohorts = self.data.read(effort.data[self.data.option], Path(folder))
            people = _QUICK if effort.quick else cohorts.target[1]
            cases = [
                TableCase(cohorts, part, people // share, *promise)
                for promise, (part, share) in product(promises, PARTS.items())
            ]
            tasks = [(case, seed) for seed in range(effort.seeds) for case in cases]
            for rows in each(TableCase.play, tasks, effort.jobs, effort.backend):
                yield from rows

    def draw(self, title: str, rows: Rows) -> Figure:
        """Draw ratios as bars, with marks where they are printed."""
        promises = sorted(rows.by("epsilon", "eps_aux"))
        policies = [*METHODS, OURS, _HELPED]
        figure, axes = panels(2, title, height=4.6)
        for axis, part in zip(axes, PARTS, strict=True):
            for place, promise in enumerate(promises):
                found = ratios(_of(rows, promise, part))
                at = np.arange(len(policies)) + place / (len(promises) + 1)
                label = f"epsilon {promise[0]:g}, sources {promise[1]:g}"
                axis.barh(at, [found[one] for one in policies], 0.8 / len(promises), color=COLOURS[place], label=label)
                axis.plot(PRINTED[self.data.name, promise, part], at[: len(METHODS)], "k|", markersize=5)
            axis.axvline(1.0, color="#555555", linewidth=0.8)
            middle = np.arange(len(policies)) + (len(promises) - 1) / (len(promises) + 1) / 2
            axis.set_yticks(middle, policies if part == "n/4" else [], fontsize=7)
            axis.set_title(f"after {part}", fontsize=9)
        legend: dict[str, Any] = {"fontsize": 6, "title": "marks: as printed", "title_fontsize": 6}
        axes[1].legend(**legend, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return figure

    def verdict(self, rows: Rows) -> str:
        """Say what each cell comes to, which method stands out, and what ranks add up to."""
        said = ["Reward relative to ABSE (as printed), at (epsilon, epsilon of sources):"]
        for promise, part in _cells(rows):
            cell = _of(rows, promise, part)
            found, printed = ratios(cell), dict(zip(METHODS, PRINTED[self.data.name, promise, part], strict=True))
            figures = ", ".join(f"{name} {found[name]:.3f} ({printed[name]:.3f})" for name in METHODS)
            best = best_of(cell)
            outcome = f"significantly best of the six is {best}" if best else "none of the six is significantly best"
            said.append(
                f"({promise[0]:g}, {promise[1]:g}) after {part}: {figures}; ours {found[OURS]:.3f}, with sources "
                f"{found[_HELPED]:.3f}; {outcome} (Wilcoxon's signed-rank test over seeds, level .05)."
            )
        return "\n".join([*said, *self._ranked(rows), self.data.inferred])

    def _ranked(self, rows: Rows) -> Iterator[str]:
        """Say what ranks add up to here, and in the table as printed."""
        names = ", ".join(METHODS)
        for part in PARTS:
            cells = [_of(rows, promise, own) for promise, own in _cells(rows) if own == part]
            here = rank_sums([ratios(cell)[name] for name in METHODS] for cell in cells)
            theirs = rank_sums(PRINTED[self.data.name, promise, own] for promise, own in _cells(rows) if own == part)
            whole = rank_sums(value for key, value in PRINTED.items() if key[2] == part)
            printed, data = PRINTED_RANK_SUMS[part], self.data.name
            yield (
                f"Rank sums after {part} of {names}: {_listed(here)} here, on {data}; {_listed(theirs)} from "
                f"its printed ratios; {_listed(whole)} from those of all three data sets (sum {whole.sum():g}), where "
                f"{_listed(printed)} are printed (sum {sum(printed)}: ties take the best of their ranks)."
            )

    def sentence(self, rows: Rows) -> str:
        """Say how ours stands, and which of the six is first."""
        pairs = [
            (ratios(_of(rows, promise, part))[OURS], PRINTED[self.data.name, promise, part][1])
            for promise, part in _cells(rows)
            if part == "n"
        ]
        above = sum(own > printed for own, printed in pairs)
        here = rank_sums([ratios(_of(rows, *cell))[name] for name in METHODS] for cell in _cells(rows))
        printed = rank_sums(PRINTED[self.data.name, promise, part] for promise, part in _cells(rows))
        least, most = (end(own for own, _ in pairs) for end in (min, max))
        return (
            f"Without other data ours earns {least:.3f} to {most:.3f} of ABSE's reward in the end, more than LDPMAB's "
            f"printed ratio under {above} of {len(pairs)} promises; of the paper's six "
            f"{METHODS[int(here.argmin())]} ranks first here, and {METHODS[int(printed.argmin())]} in print."
        )

    def compared(self, rows: Rows) -> list[Compared]:
        """Set printed ratios beside those run here, and ours."""
        found = []
        for promise, part in _cells(rows):
            own, printed = ratios(_of(rows, promise, part)), PRINTED[self.data.name, promise, part]
            for name, ratio in zip(METHODS, printed, strict=True):
                beside = {METHODS[0]: _HELPED, METHODS[1]: OURS}.get(name, "")
                what = f"({promise[0]:g}, {promise[1]:g}) after {part}: {name}"
                found.append(Compared(what, f"{ratio:.3f}", f"{own[name]:.3f}", f"{own[beside]:.3f}" if beside else ""))
        return found


TABLE_2: Final = Table2(ADULT).reproduction
TABLE_2_JOBS: Final = Table2(JOBS).reproduction
TABLE_2_TAXI: Final = Table2(TAXI, minutes=150).reproduction
