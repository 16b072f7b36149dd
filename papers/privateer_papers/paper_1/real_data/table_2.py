"""Paper 1's Table 2 as printed: reward relative to ABSE's, of six methods on three data sets under four promises."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata, wilcoxon

from privateer_core.arrays import Array
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import BASELINES, Baseline, as_arms_spec, play_together
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import make_simulation, run_to_end
from privateer_papers.paper_1.real_data.descent import FixedStepLinear, LaplaceLinear, SourcedLinear, SourcedNetwork
from privateer_papers.paper_1.real_data.people import ADULT, FEATURES, JOBS, TAXI, Cohorts, PublicData
from privateer_papers.paper_1.setting import OUR_ALGORITHM, build_spec
from privateer_papers.paper_1.setting import PUBLISHED_ALGORITHM as THEIR_ALGORITHM
from privateer_papers.reproduction import OURS, Effort, Reproduction, Row, Rows, TableLine

METHODS: Final = ("LDPMAB, with", "LDPMAB", "Linear, with", "Linear", "NN, with", "NN")
"""The columns: each method with auxiliary data and without."""
PROMISES: Final = ((1.0, 1.0), (1.0, 4.0), (2.0, 1.0), (2.0, 4.0))
"""Epsilons of the target's participants and of the sources."""
PARTS: Final = {"n/4": 4, "n": 1}
"""Parts of the target after which rewards of one run are read, and divisors of its size."""
_PRINTED_TABLE: Final = """
Adult 1.459 0.987 0.954 0.950 0.906 0.935 1.101 0.795 0.724 0.715 0.750 0.784
Jobs 0.801 0.797 0.786 0.794 0.800 0.795 0.694 0.693 0.684 0.690 0.700 0.695
Taxi 0.989 0.976 0.987 0.984 0.998 0.989 0.994 0.992 0.996 0.993 0.998 0.995
Adult 1.602 0.987 0.988 0.986 1.110 0.992 1.210 0.795 0.782 0.771 0.871 0.816
Jobs 0.846 0.797 0.795 0.804 0.800 0.798 0.742 0.693 0.688 0.704 0.698 0.695
Taxi 0.997 0.985 0.976 0.969 0.990 0.989 0.996 0.992 0.992 0.991 0.996 0.995
Adult 1.459 0.986 0.964 0.986 0.895 0.930 1.102 0.919 0.762 0.772 0.745 0.808
Jobs 0.819 0.808 0.788 0.791 0.800 0.797 0.719 0.720 0.683 0.683 0.705 0.688
Taxi 0.992 0.974 0.989 0.989 1.000 0.996 0.996 0.992 0.997 0.997 1.000 0.999
Adult 1.602 0.986 0.964 0.968 0.895 0.929 1.210 0.919 0.762 0.762 0.745 0.791
Jobs 0.857 0.808 0.788 0.785 0.800 0.792 0.754 0.720 0.683 0.674 0.705 0.696
Taxi 1.001 0.974 0.989 0.989 1.000 1.000 1.002 0.992 0.997 0.997 1.000 1.000
"""
"""Four blocks, one a promise, of a line for each data set: six ratios after a quarter of the people, six after all."""
PRINTED_RANK_SUMS: Final = {"n/4": (15, 45, 55, 52, 37, 43), "n": (22, 44, 54, 56, 33, 36)}
DATASETS: Final = ("Adult", "Jobs", "Taxi")


def _parse_printed_table() -> dict[tuple[str, tuple[float, float], str], tuple[float, ...]]:
    """Parse the printed table into ratios by data set, promise and part."""
    ratios_by_cell = {}
    for index, line in enumerate(_PRINTED_TABLE.split("\n")[1:-1]):
        name, *figures = line.split()
        ratios = [float(figure) for figure in figures]
        for part, part_ratios in zip(PARTS, (ratios[:6], ratios[6:]), strict=True):
            ratios_by_cell[name, PROMISES[index // len(DATASETS)], part] = tuple(part_ratios)
    return ratios_by_cell


PRINTED: Final = _parse_printed_table()
"""Ratios in the order of `METHODS`, by data set, promise and part."""

_SIGNIFICANCE_LEVEL: Final = 0.05


def sum_ranks(settings: Iterable[Sequence[float]]) -> Array:
    """Return the sum, over settings, of each method's rank: 1 is the largest; ties share the mean of their ranks.

    settings: figures of the same methods in the same order, one sequence a setting.
    """
    return np.asarray(rankdata(-np.array([list(figures) for figures in settings]), axis=1).sum(axis=0))


def find_significantly_best(rewards: Mapping[str, Sequence[float]]) -> str | None:
    """Return the method with the largest mean if it is significantly better than every other method, else None.

    Wilcoxon's signed-rank test against each other method, on runs of the same seeds, one-sided at level .05.

    rewards: of each run, in the order of seeds, by method.
    """
    best = max(rewards, key=lambda name: float(np.mean(rewards[name])))
    others = [rewards[name] for name in rewards if name != best]
    return best if all(is_better(rewards[best], other) for other in others) else None


def is_better(rewards: Sequence[float], other: Sequence[float]) -> bool:
    """Whether rewards are significantly larger than the rewards of another method in runs of the same seeds."""
    gaps = np.subtract(rewards, other)
    return bool(gaps.any()) and float(wilcoxon(gaps, alternative="greater").pvalue) < _SIGNIFICANCE_LEVEL


_NOISIER_LINEAR: Final = "Linear, Laplace noise"
_FIXED_STEP_LINEAR: Final = "Linear, Laplace noise, the script's step"
_MAX_REWARD: Final = 0.85
"""About the share of the people of Adult whose class the best classifiers know."""
_HELPED_OURS: Final = f"{OURS}, with"
_REFERENCE: Final = "ABSE"
_QUICK_PARTICIPANTS: Final = 4000
_NAMES_WITH_SOURCES: Final = dict(zip(METHODS[1::2], METHODS[::2], strict=True))
"""Each method without sources, and with them."""


def read_mean_reward(path: Iterable[tuple[int, float]], people: int) -> float:
    """Return the mean reward of a run's first participants, up to the last round that ends within ``people``."""
    count, total = max(point for point in path if point[0] <= people)
    return total / count


@dataclass(frozen=True)
class TableCase:
    """A promise of the table: participants of the target, and epsilons of target and sources."""

    cohorts: Cohorts
    people: int
    epsilon: float
    aux: float

    def build_spec(self, algorithm: str, *, with_sources: bool) -> Spec:
        """Build the experiment on this part of the target, with or without sources; reward 1 for the right class."""
        sources = [
            {
                "name": name,
                "participants": count,
                "epsilon": self.aux,
                "shares": [0.5, 0.5],
                "population": Cohorts.population(path),
            }
            for name, (path, count) in self.cohorts.sources.items()
        ]
        return build_spec(
            {"name": "table-2", "arms": ["no", "yes"], "horizon": self.people},
            FEATURES,
            {"model": "local", "epsilon": self.epsilon},
            sources if with_sources else [],
            Cohorts.population(self.cohorts.target[0]),
            algorithm,
        )

    def play(self, seed: int) -> list[Row]:
        """Return rows for each method, with and without sources, for ours, and for ABSE: after n/4 and n of one run."""
        bare_spec, sourced_spec = (
            as_arms_spec(self.build_spec(OUR_ALGORITHM, with_sources=with_sources)) for with_sources in (False, True)
        )
        linear, network = METHODS[3], METHODS[5]
        baselines: dict[str, Baseline] = {
            _REFERENCE: BASELINES["abse"](bare_spec, seed),
            linear: BASELINES["linear"](bare_spec, seed),
            network: BASELINES["network"](bare_spec, seed),
            _NOISIER_LINEAR: LaplaceLinear(bare_spec, seed),
            _NAMES_WITH_SOURCES[linear]: SourcedLinear(sourced_spec, seed),
            _NAMES_WITH_SOURCES[network]: SourcedNetwork(sourced_spec, seed),
            _FIXED_STEP_LINEAR: FixedStepLinear(bare_spec, seed),
        }
        paths = {run.name: run.path for run in play_together(bare_spec, baselines, seed)}
        for algorithm, names in ((THEIR_ALGORITHM, METHODS[1::-1]), (OUR_ALGORITHM, (OURS, _HELPED_OURS))):
            for name, with_sources in zip(names, (False, True), strict=True):
                paths[name] = _play_algorithm(self.build_spec(algorithm, with_sources=with_sources), seed)
        facts = {"epsilon": self.epsilon, "eps_aux": self.aux, "seed": seed}
        return [
            {**facts, "part": part, "policy": name, "reward": read_mean_reward(path, self.people // divisor)}
            for part, divisor in PARTS.items()
            for name, path in paths.items()
        ]


def _play_algorithm(spec: Spec, seed: int) -> tuple[tuple[int, float], ...]:
    """Run an experiment; return its participants and the sum of their rewards before each round, and at the end."""
    simulation, path = make_simulation(spec, seed), list[tuple[int, float]]()

    def record(_step: Any = None) -> None:
        if simulation.score.played.times:
            path.append((int(simulation.score.played.times), float(simulation.score.reward)))

    run_to_end(simulation, record)
    record()
    return tuple(path)


Cell = tuple[tuple[float, float], str]
"""A cell of the table: a promise, and a part of the people."""


def _split_cells(rows: Rows) -> dict[Cell, Rows]:
    """Return the rows of each cell of the table that they have."""
    promises = sorted(rows.group_by("epsilon", "eps_aux"))
    return {
        ((epsilon, aux), part): rows.where(epsilon=epsilon, eps_aux=aux, part=part)
        for epsilon, aux in promises
        for part in PARTS
    }


def compute_ratios(rows: Rows) -> dict[str, float]:
    """Return each policy's mean reward over ABSE's, in a cell of the table."""
    means = {policy: rows.where(policy=policy).mean("reward")[0] for (policy,) in rows.group_by("policy")}
    return {policy: mean / means[_REFERENCE] for policy, mean in means.items() if policy != _REFERENCE}


def find_best_method(rows: Rows) -> str | None:
    """Return the paper's method that is significantly better than the five others in a cell, or None."""
    paired = {name: sorted(rows.where(policy=name), key=lambda row: row["seed"]) for name in METHODS}
    return find_significantly_best({name: [row["reward"] for row in runs] for name, runs in paired.items()})


def _sum_own_ranks(cells: Mapping[Cell, Rows]) -> Array:
    """Return the rank sums of the paper's methods as they run here."""
    return sum_ranks([compute_ratios(subset)[name] for name in METHODS] for subset in cells.values())


def _format_figures(values: Any) -> str:
    return ", ".join(f"{value:g}" for value in values)


@dataclass(frozen=True)
class Table2:
    """The rows of the table for a data set."""

    data: PublicData
    minutes: int = 10

    @property
    def reproduction(self) -> Reproduction:
        """The reproduction of these rows."""
        return Reproduction(
            "paper-1-table-2" + ("" if self.data is ADULT else f"-{self.data.name.lower()}"),
            f"Paper 1, Table 2, {self.data.name}: reward relative to ABSE",
            *(self.rows, self.draw, self.sentence, self.compared),
            minutes=self.minutes,
            needs=self.data.option,
            remarks=self.remarks,
        )

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Yield a row for each method, run and cell of the table."""
        promises = PROMISES[:1] if effort.quick else PROMISES
        with TemporaryDirectory() as folder:
            cohorts = self.data.split_files(effort.data[self.data.option], Path(folder))
            people = _QUICK_PARTICIPANTS if effort.quick else cohorts.target[1]
            cases = [(TableCase(cohorts, people, *promise),) for promise in promises]
            for rows in effort.play(TableCase.play, cases):
                yield from rows

    def draw(self, title: str, rows: Rows) -> Figure:
        """Draw ratios as bars, with marks at the printed ratios."""
        cells, policies = _split_cells(rows), [*METHODS, OURS, _HELPED_OURS]
        promises = list(dict.fromkeys(promise for promise, _ in cells))
        figure, axes = create_panels(2, title, height=4.6)
        for axis, part in zip(axes, PARTS, strict=True):
            for index, promise in enumerate(promises):
                heights = compute_ratios(cells[promise, part])
                y = np.arange(len(policies)) + index / (len(promises) + 1)
                label = f"epsilon {promise[0]:g}, sources {promise[1]:g}"
                axis.barh(
                    y, [heights[name] for name in policies], 0.8 / len(promises), color=COLOURS[index], label=label
                )
                axis.plot(PRINTED[self.data.name, promise, part], y[: len(METHODS)], "k|", markersize=5)
            axis.axvline(1.0, color="#555555", linewidth=0.8)
            tick_positions = np.arange(len(policies)) + (len(promises) - 1) / (len(promises) + 1) / 2
            axis.set_yticks(tick_positions, policies if part == "n/4" else [], fontsize=7)
            axis.set_title(f"after {part}", fontsize=9)
        legend: dict[str, Any] = {"fontsize": 6, "title": "marks: as printed", "title_fontsize": 6}
        axes[1].legend(**legend, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return figure

    def remarks(self, rows: Rows) -> list[str]:
        """Say which method is significantly best in each cell, the rank sums, and what is inferred of the data."""
        texts = []
        for (pair, part), cell in _split_cells(rows).items():
            best = find_best_method(cell)
            outcome = f"significantly best of the six is {best}" if best else "none of the six is significantly best"
            test = "Wilcoxon's signed-rank test over seeds, level .05"
            texts.append(f"({pair[0]:g}, {pair[1]:g}) after {part}: {outcome} ({test}).")
        competitors = [self._compare_competitors(rows)] if self.data is ADULT else []
        return [*texts, *competitors, *self._iter_rank_sums(rows), self.data.inferred]

    def _compare_competitors(self, rows: Rows) -> str:
        """Compare the rewards of Linear and NN with their bounds from print, where no method is above classifiers."""
        (promise, part), cell = list(_split_cells(rows).items())[1]
        printed = dict(zip(METHODS, PRINTED[self.data.name, promise, part], strict=True))
        # of all promises: ABSE's reward does not depend on them
        largest = max(max(PRINTED[self.data.name, pair, part]) for pair in PROMISES)
        names, means = (
            METHODS[3::2],
            {name: subset.mean("reward")[0] for (name,), subset in cell.group_by("policy").items()},
        )
        bounds = ", ".join(f"{name} {printed[name] / largest * _MAX_REWARD:.2f}" for name in names)
        rewards = ", ".join(f"{name} {means[name]:.2f}" for name in (*names, _NOISIER_LINEAR, _FIXED_STEP_LINEAR))
        return (
            f"Linear and NN: ABSE's reward in print is at most {_MAX_REWARD / largest:.2f}, since {largest:g} times it "
            f"is earned there and {_MAX_REWARD:g} is what classifiers reach. So after n they earn in print at most "
            f"{bounds}, about what a coin earns (0.50): they do not learn. Here they earn {rewards}. Neither noise nor "
            "the step is the difference; what is, is not known: the authors' script names a step and a clip, but their "
            "repository has no file of the descent itself, and their supplement is not at hand."
        )

    def _iter_rank_sums(self, rows: Rows) -> Iterator[str]:
        """Yield sentences with the rank sums here, and in the printed table."""
        names = ", ".join(METHODS)
        for part in PARTS:
            cells = {cell: subset for cell, subset in _split_cells(rows).items() if cell[1] == part}
            own_sums, printed_sums = _sum_own_ranks(cells), sum_ranks(PRINTED[self.data.name, *cell] for cell in cells)
            all_sums = sum_ranks(value for key, value in PRINTED.items() if key[2] == part)
            printed, data = PRINTED_RANK_SUMS[part], self.data.name
            yield (
                f"Rank sums after {part} of {names}: {_format_figures(own_sums)} here, on {data}; "
                f"{_format_figures(printed_sums)} from its printed ratios; {_format_figures(all_sums)} from those of "
                f"all three data sets (sum {all_sums.sum():g}), where {_format_figures(printed)} are printed (sum "
                f"{sum(printed)}: ties take the best of their ranks)."
            )

    def sentence(self, rows: Rows) -> str:
        """Return a sentence with the range of our ratios, and the first of the paper's methods by rank sum."""
        cells = _split_cells(rows)
        pairs = [
            (compute_ratios(subset)[OURS], PRINTED[self.data.name, *cell][1])
            for cell, subset in cells.items()
            if cell[1] == "n"
        ]
        n_above = sum(ratio > printed for ratio, printed in pairs)
        totals, printed = _sum_own_ranks(cells), sum_ranks(PRINTED[self.data.name, *cell] for cell in cells)
        low, high = (select(ratio for ratio, _ in pairs) for select in (min, max))
        return (
            f"Without other data ours earns {low:.3f} to {high:.3f} of ABSE's reward in the end, more than LDPMAB's "
            f"printed ratio under {n_above} of {len(pairs)} promises; of the paper's six "
            f"{METHODS[int(totals.argmin())]} ranks first here, and {METHODS[int(printed.argmin())]} in print."
        )

    def compared(self, rows: Rows) -> list[TableLine]:
        """Return lines with the printed ratios, the ratios run here, and ours."""
        table = []
        for (promise, part), subset in _split_cells(rows).items():
            cell, printed = compute_ratios(subset), PRINTED[self.data.name, promise, part]
            for name, ratio in zip(METHODS, printed, strict=True):
                peer = {METHODS[0]: _HELPED_OURS, METHODS[1]: OURS}.get(name, "")
                label = f"({promise[0]:g}, {promise[1]:g}) after {part}: {name}"
                table.append(TableLine(label, f"{ratio:.3f}", f"{cell[name]:.3f}", f"{cell[peer]:.3f}" if peer else ""))
        return table


TABLE_2: Final = Table2(ADULT).reproduction
TABLE_2_JOBS: Final = Table2(JOBS).reproduction
TABLE_2_TAXI: Final = Table2(TAXI, minutes=150).reproduction
