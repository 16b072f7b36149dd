"""Simulated experiments and sweeps in a notebook: figures and results of every seed, and the path of regret."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.notebook.policies import LoadedPolicy
from privateer_lab.notebook.results import ExperimentResult, build_result
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read_spec
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.planning.plans import average_regret_curve
from privateer_lab.planning.sweep import SweepJournal, iterate_product, make_cells, read_journal
from privateer_lab.planning.sweep import run_sweep as sweep_rows
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.simulate import list_figures, make_simulation, run_to_end, summarize
from privateer_lab.simulation.simulation import Run
from privateer_server.conclusions.conclusion import conclude

_MAX_PATH_POINTS: Final = 400
"""Largest number of rounds in a stored path."""


@dataclass(frozen=True, repr=False)
class Simulated(Tabular):
    """The outcomes of simulated experiments: a row for each seed.

    Attributes
    ----------
    spec
        The experiment's spec.
    runs
        The run of each seed, in order.
    policy
        The last policy of the first seed.
    result
        The result of the first seed; None if the algorithm reports nothing.
    summary
        Figures over all seeds, the promise, and whether it is true, as ``privateer simulate --json`` prints them.
    """

    spec: Spec
    runs: tuple[Run, ...]
    policy: LoadedPolicy
    result: ExperimentResult | None
    summary: dict[str, Any]

    @cached_property
    def table(self) -> ResultTable:
        """A row for each seed."""
        return build_table(f"{self.spec.name}: simulated", ({"seed": run.seed, **run.figures()} for run in self.runs))

    @property
    def notes(self) -> Sequence[str]:
        """Mean regret, assumptions, and warnings."""
        mean, half_width = self.summary["regret_mean"], self.summary["regret_ci95"]
        error = "" if half_width is None else f" ± {half_width:,.0f}"
        regret = f"Mean regret is {mean:,.0f}{error}; choosing at random loses {self.summary['uniform_regret']:,.0f}."
        return regret, *self.summary["assumed"], *(f"Warning: {note}" for note in self.summary["warnings"])

    @cached_property
    def path(self) -> ResultTable:
        """Regret a choice by the number of choices: the mean of all seeds, and the worst."""
        return build_table(f"{self.spec.name}: regret a choice", average_regret_curve(list(self.runs)))


def simulate(
    spec: SpecLike,
    *,
    people: Any = None,
    users: int | None = None,
    seeds: int = 4,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> Simulated:
    """Simulate an experiment with its ``population``, as ``privateer simulate`` does.

    Parameters
    ----------
    spec
        A source that `spec` takes.
    people
        A population in the place of the spec's, as `spec` takes it.
    users
        The number of participants; the spec's by default.
    seeds
        Number of independent runs: the seeds are 0, 1 and so on.
    jobs
        Number of processes; None: one a core.
    backend
        Run processes here, or on a Ray cluster.

    Raises
    ------
    SpecError
        If the spec is invalid, or has no population.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> simulated = lab.simulate("examples/peaks-local.toml", users=3000, seeds=2)
    >>> len(simulated), simulated.to_arrow().column_names[:2]
    (2, ['seed', 'regret'])
    >>> simulated.summary["holds"]
    True
    """
    parsed, start_time = read_spec(spec, users=users, people=people), time.perf_counter()
    outcomes = run_tasks(_run_to_end, [(parsed, seed) for seed in range(check_n_seeds(seeds))], jobs, backend)
    seed_outcomes = sorted(outcomes, key=lambda outcome: outcome[0].seed)
    first = seed_outcomes[0]
    return Simulated(
        parsed,
        tuple(run for run, *_ in seed_outcomes),
        LoadedPolicy(parsed, first[1]),
        build_result(parsed.name, *first[2:]) if first[2].says_something else None,
        summarize(parsed, [run for run, *_ in seed_outcomes], start_time),
    )


def check_n_seeds(seeds: int) -> int:
    """Return the number of seeds; raise a `SpecError` if it is no positive whole number."""
    if not (isinstance(seeds, int) and seeds >= 1):
        raise SpecError("must be a whole number of at least 1", field="seeds", remedy="4 is usual")
    return seeds


def _run_to_end(spec: Spec, seed: int) -> tuple[Run, Any, Answer, Conclusion]:
    """Run a simulation to its end; return the run, its last policy, its result and conclusion."""
    ended = run_to_end(make_simulation(spec, seed))
    result = ended.schedule.answer(ended.step)
    run = ended.build_run()
    indices = np.unique(np.geomspace(1, len(run.path), _MAX_PATH_POINTS).astype(np.int64)) - 1
    run = replace(run, path=tuple(run.path[index] for index in indices))
    return run, ended.step.policy, result, conclude(ended.schedule, ended.step, result)


def sweep(
    spec: SpecLike,
    vary: Mapping[str, Sequence[Any]],
    *,
    users: int | None = None,
    seeds: int = 4,
    out: "str | PathLike[str] | None" = None,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> ResultTable:
    """Run a spec over all combinations of settings, as ``privateer simulate`` does.

    Parameters
    ----------
    spec
        A source that `spec` takes; it has a ``population``.
    vary
        Values of keys by dotted name.
    users, seeds, jobs, backend
        As in `simulate`.
    out
        A CSV file to which rows are appended. The same call continues an interrupted sweep.

    Raises
    ------
    SpecError
        If a combination is no spec, or the file holds another table.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> table = lab.sweep("examples/peaks-local.toml", {"privacy.epsilon": [1, 4]}, users=2000, seeds=1)
    >>> [(row["privacy.epsilon"], row["people"]) for row in table.rows()]
    [(1, 2000), (4, 2000)]
    """
    parsed = read_spec(spec, users=users)
    if not all(isinstance(values, Sequence) and not isinstance(values, str) and values for values in vary.values()):
        detail = "must have a list of values for each key"
        raise SpecError(detail, field="vary", remedy="write {'privacy.epsilon': [1, 4]}")
    variations = iterate_product(vary)
    grid = make_cells(((tuple(map(to_toml, keys.values())), read_spec(parsed, keys)) for keys in variations), seeds)
    with TemporaryDirectory() as folder:
        path = Path(out) if out is not None else Path(folder) / "sweep.csv"
        with SweepJournal(path, vary, list_figures(grid[0].spec)) as journal:
            for _ in sweep_rows(grid, journal, jobs, backend):
                pass
        columns = read_journal(path)
    return ResultTable(f"{parsed.name}: sweep", columns)
