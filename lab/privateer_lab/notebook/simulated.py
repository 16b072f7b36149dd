"""Simulated experiments and sweeps in a notebook: figures of every seed, regret over people, what was found."""

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
from privateer_lab.drafting.toml_values import toml
from privateer_lab.notebook.policies import LoadedPolicy
from privateer_lab.notebook.results import Found, found_in
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.planning.plans import curve
from privateer_lab.planning.sweep import SweepJournal, cells, product_of, read_journal
from privateer_lab.planning.sweep import sweep as rows_of
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulate import figures_of, simulation, to_the_end
from privateer_lab.simulation.simulation import Run
from privateer_lab.simulation.summary import summary
from privateer_server.conclusions.conclusion import conclude

_POINTS: Final = 400
"""Most rounds of a path that are kept."""


@dataclass(frozen=True, repr=False)
class Simulated(Tabular):
    """The outcomes of simulated experiments: a row for each seed.

    Attributes
    ----------
    spec
        The experiment's.
    runs
        One for each seed, in order.
    policy
        The last policy of the first seed.
    found
        What the first seed found; None if the algorithm reports nothing.
    summary
        Figures over all seeds, the promise, and whether it is true, as ``privateer simulate --json`` prints them.
    """

    spec: Spec
    runs: tuple[Run, ...]
    policy: LoadedPolicy
    found: Found | None
    summary: dict[str, Any]

    @cached_property
    def table(self) -> ResultTable:
        """A row for each seed."""
        return table_of(f"{self.spec.name}: simulated", ({"seed": run.seed, **run.figures()} for run in self.runs))

    @property
    def notes(self) -> Sequence[str]:
        """Mean regret, what is assumed, and warnings."""
        mean, half = self.summary["regret_mean"], self.summary["regret_ci95"]
        sure = "" if half is None else f" ± {half:,.0f}"
        said = f"Mean regret is {mean:,.0f}{sure}; choosing at random loses {self.summary['uniform_regret']:,.0f}."
        return said, *self.summary["assumed"], *(f"Warning: {one}" for one in self.summary["warnings"])

    @cached_property
    def path(self) -> ResultTable:
        """Regret a choice after so many choices: the mean of all seeds, and the worst."""
        return table_of(f"{self.spec.name}: regret a choice", curve(list(self.runs)))


def simulate(
    spec: SpecLike,
    *,
    people: Any = None,
    users: int | None = None,
    seeds: int = 4,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> Simulated:
    """Simulate an experiment with the people of its ``population``, as ``privateer simulate`` does.

    Parameters
    ----------
    spec
        What `spec` takes.
    people
        Other people than those of the spec, as `spec` takes them.
    users
        The number of people; the spec's by default.
    seeds
        Number of independent runs: the seeds are 0, 1 and so on.
    jobs
        Number of processes; None: one a core.
    backend
        Run processes here, or on a Ray cluster.

    Raises
    ------
    SpecError
        If the spec is invalid, or has no people.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> made = lab.simulate("examples/peaks-local.toml", users=3000, seeds=2)
    >>> len(made), made.to_arrow().column_names[:2]
    (2, ['seed', 'regret'])
    >>> made.summary["holds"]
    True
    """
    parsed, started = read(spec, users=users, people=people), time.perf_counter()
    ended = each(_ended, [(parsed, seed) for seed in range(count_of(seeds))], jobs, backend)
    runs = sorted(ended, key=lambda one: one[0].seed)
    first = runs[0]
    return Simulated(
        parsed,
        tuple(run for run, *_ in runs),
        LoadedPolicy(parsed, first[1]),
        found_in(parsed.name, *first[2:]) if first[2].says_something else None,
        summary(parsed, [run for run, *_ in runs], started),
    )


def count_of(seeds: int) -> int:
    """Return a number of seeds.

    Raises
    ------
    SpecError
        If it is none.
    """
    if not (isinstance(seeds, int) and seeds >= 1):
        raise SpecError("must be a whole number of at least 1", field="seeds", remedy="4 is usual")
    return seeds


def _ended(spec: Spec, seed: int) -> tuple[Run, Any, Answer, Conclusion]:
    """Return a run, its last policy, what it found, and what follows."""
    over = to_the_end(simulation(spec, seed))
    answer = over.schedule.answer(over.step)
    return _shorter(over.outcome()), over.step.policy, answer, conclude(over.schedule, over.step, answer)


def _shorter(run: Run) -> Run:
    """Keep some rounds of the path: there may be a great many."""
    kept = np.unique(np.geomspace(1, len(run.path), _POINTS).astype(np.int64)) - 1
    return replace(run, path=tuple(run.path[place] for place in kept))


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
        What `spec` takes; it has a ``population``.
    vary
        Values of keys by dotted name.
    users, seeds, jobs, backend
        As in `simulate`.
    out
        A CSV file to which rows are added as they come. The same call goes on where it was interrupted.

    Raises
    ------
    SpecError
        If a combination is no spec, or the file holds another table.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> made = lab.sweep("examples/peaks-local.toml", {"privacy.epsilon": [1, 4]}, users=2000, seeds=1)
    >>> [(row["privacy.epsilon"], row["people"]) for row in made.rows()]
    [(1, 2000), (4, 2000)]
    """
    parsed = read(spec, users=users)
    if not all(isinstance(values, Sequence) and not isinstance(values, str) and values for values in vary.values()):
        detail = "must have a list of values for each key"
        raise SpecError(detail, field="vary", remedy="write {'privacy.epsilon': [1, 4]}")
    made = product_of(vary)
    wanted = cells(((tuple(map(toml, one.values())), read(parsed, one)) for one in made), seeds)
    with TemporaryDirectory() as folder:
        path = Path(out) if out is not None else Path(folder) / "sweep.csv"
        with SweepJournal(path, vary, figures_of(wanted[0].spec)) as journal:
            for _ in rows_of(wanted, journal, jobs, backend):
                pass
        columns = read_journal(path)
    return ResultTable(f"{parsed.name}: sweep", columns)
