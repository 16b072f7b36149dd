"""Plans in a notebook: what an experiment costs and earns under every promise."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privateer_core.spec.spec import Spec
from privateer_lab.answer_tables import rows_of
from privateer_lab.notebook.simulated import count_of
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.expectation.search import Search
from privateer_lab.planning.plans import (
    EPSILONS,
    MODELS,
    batches,
    epsilons_of,
    foreseen,
    outcome,
    possible,
    trust_models,
)
from privateer_lab.simulation.delayed_reports import assumed
from privateer_lab.simulation.parallel import Backend

_APART = ("people_needed", "path")


@dataclass(frozen=True, repr=False)
class Planned(Tabular):
    """Costs and earnings of promises: a row for each trust model and epsilon.

    Attributes
    ----------
    spec
        The experiment's.
    outcomes
        As ``privateer plan --json`` prints them.
    batches
        How large batches must be for a report to cost more by itself, where reports are shuffled.
    foreseen
        What each promise lets the learner find, where it knows.
    refused
        Promises that are not possible, and why.
    warnings
        What is allowed and probably not meant.
    """

    spec: Spec
    outcomes: tuple[Mapping[str, Any], ...]
    batches: ResultTable
    foreseen: ResultTable
    refused: tuple[str, ...]
    warnings: tuple[str, ...]

    @cached_property
    def table(self) -> ResultTable:
        """A row for each promise."""
        return table_of(f"{self.spec.name}: plan", map(_row, self.outcomes))

    @property
    def notes(self) -> Sequence[str]:
        """What is assumed and left out, and warnings."""
        return [
            *assumed(self.spec),
            *(f"Left out: {one}" for one in self.refused),
            *(f"Warning: {one}" for one in self.warnings),
        ]

    @cached_property
    def path(self) -> ResultTable:
        """Regret a choice after so many choices, for each promise: the mean of all seeds, and the worst."""
        rows = (
            {"model": one["model"], "epsilon": one["epsilon"], **point}
            for one in self.outcomes
            for point in one["path"]
        )
        return table_of(f"{self.spec.name}: regret a choice", rows)


def plan(
    spec: SpecLike,
    *,
    trust: Iterable[str] = MODELS,
    epsilon: Iterable[float] = EPSILONS,
    people: Any = None,
    users: int | None = None,
    seeds: int = 4,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> Planned:
    """Return what an experiment costs and earns under several promises, as ``privateer plan`` does.

    Parameters
    ----------
    spec
        What `spec` takes; it has a ``population``.
    trust, epsilon
        Trust models, and values of epsilon.
    people, users, seeds, jobs, backend
        As in `simulate`.

    Raises
    ------
    SpecError
        If the spec, or one of the promises, is not possible.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> made = lab.plan("examples/peaks-shuffle.toml", trust=["central"], epsilon=[1, 4], users=3000, seeds=1)
    >>> made.to_arrow().select(["model", "epsilon", "people"]).to_pylist()[0]
    {'model': 'central', 'epsilon': 1.0, 'people': 3000}
    """
    parsed, seeds = read(spec, users=users, people=people), count_of(seeds)
    wanted, refused = possible(parsed, trust_models(trust), epsilons_of(epsilon))
    search = Search([VariedSpec("trust", "", one) for one in wanted], lambda runs, _: list(runs), jobs, backend)
    search.whole(seeds)
    unplayed, played = search.refused, {place: [one.run for one in runs] for place, runs in search.runs.items()}
    if not played:
        raise unplayed[0].error
    return Planned(
        parsed,
        tuple(outcome(wanted[place], runs) for place, runs in played.items()),
        table_of("batches", batches(wanted)),
        table_of("what can be found", _findings(foreseen([wanted[place] for place in played]))),
        tuple(_left_out(one.row) for one in (*refused, *unplayed.values())),
        tuple(dict.fromkeys(concern for one in wanted for concern in concerns_before_start(one.spec))),
    )


def _row(outcome: Mapping[str, Any]) -> dict[str, Any]:
    needed = {f"people_to_{float(share):.0%}": people for share, people in outcome["people_needed"].items()}
    return {key: value for key, value in outcome.items() if key not in _APART} | needed


def _left_out(refused: Mapping[str, Any]) -> str:
    return f"{refused['model']} at epsilon {refused['epsilon']:g}: {refused['why']}"


def _findings(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of each promise's first table."""
    return [
        {"model": one["model"], "epsilon": one["epsilon"], **row}
        for one in found
        for titled in rows_of(one["tables"][0])
        for row in titled.rows
    ]
