"""Plans in a notebook: an experiment's regret and required participants under every trust model and epsilon."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from privateer_core.spec.spec import Spec
from privateer_lab.notebook.simulated import check_n_seeds
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read_spec
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.planning import plans
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.expectation.search import Search
from privateer_lab.render.tables import part_tables
from privateer_lab.simulation.delayed_reports import describe_assumptions
from privateer_lab.simulation.parallel import Backend
from privateer_lab.simulation.simulate import is_gaining

_NESTED_FIELDS = ("people_needed", "path")


@dataclass(frozen=True, repr=False)
class Planned(Tabular):
    """A plan of an experiment: a row of regret and costs for each trust model and epsilon.

    Attributes
    ----------
    spec
        The experiment's.
    outcomes
        As ``privateer plan --json`` prints them.
    batches
        Batch sizes from which on a single report may have a larger epsilon, where reports are shuffled.
    foreseen
        Effects that the learner is expected to find under each promise, if it can predict them.
    refused
        Promises that are not possible, and why.
    warnings
        Settings that are allowed and probably not meant.
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
        return build_table(f"{self.spec.name}: plan", map(_flatten_outcome, self.outcomes))

    @property
    def notes(self) -> Sequence[str]:
        """Assumptions, promises left out, and warnings."""
        return [
            *describe_assumptions(self.spec),
            *(f"Left out: {note}" for note in self.refused),
            *(f"Warning: {note}" for note in self.warnings),
        ]

    @cached_property
    def path(self) -> ResultTable:
        """Regret a choice by the number of choices, for each promise: the mean of all seeds, and the worst."""
        rows = (
            {"model": outcome["model"], "epsilon": outcome["epsilon"], **point}
            for outcome in self.outcomes
            for point in outcome["path"]
        )
        return build_table(f"{self.spec.name}: regret a choice", rows)


def plan(
    spec: SpecLike,
    *,
    trust: Iterable[str] = plans.MODELS,
    epsilon: Iterable[float] = plans.EPSILONS,
    people: Any = None,
    users: int | None = None,
    seeds: int = 4,
    jobs: int | None = 1,
    backend: Backend = "processes",
) -> Planned:
    """Plan an experiment under several trust models and values of epsilon, as ``privateer plan`` does.

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
    >>> planned = lab.plan("examples/peaks-shuffle.toml", trust=["central"], epsilon=[1, 4], users=3000, seeds=1)
    >>> planned.to_arrow().select(["model", "epsilon", "people"]).to_pylist()[0]
    {'model': 'central', 'epsilon': 1.0, 'people': 3000}
    """
    parsed, seeds = read_spec(spec, users=users, people=people), check_n_seeds(seeds)
    promises, refused = plans.find_promises(parsed, plans.check_trust_models(trust), plans.check_epsilons(epsilon))
    choices = [VariedSpec("trust", "", promise) for promise in promises]
    search = Search(choices, lambda runs, _: list(runs), jobs, backend)
    search.run_fully(seeds)
    runs_by_index = {index: [seed.run for seed in runs] for index, runs in search.runs.items()}
    if not runs_by_index:
        raise search.refused[0].error
    concerns = (
        concerns_before_start(promise.spec, gains=is_gaining(runs_by_index.get(index, [])))
        for index, promise in enumerate(promises)
    )
    return Planned(
        parsed,
        tuple(plans.summarize_promise(promises[index], runs) for index, runs in runs_by_index.items()),
        build_table("batches", plans.describe_batches(promises)),
        build_table(
            "what can be found", _expected_rows(plans.plan_effects([promises[index] for index in runs_by_index]))
        ),
        tuple(
            "{model} at epsilon {epsilon:g}: {why}".format_map(refusal.as_row)
            for refusal in (*refused, *search.refused.values())
        ),
        tuple(dict.fromkeys(chain.from_iterable(concerns))),
    )


def _flatten_outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    people_by_share = {f"people_to_{float(share):.0%}": people for share, people in outcome["people_needed"].items()}
    return {key: value for key, value in outcome.items() if key not in _NESTED_FIELDS} | people_by_share


def _expected_rows(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the first table of each promise's expected findings."""
    return [
        {"model": finding["model"], "epsilon": finding["epsilon"], **row}
        for finding in findings
        for titled in part_tables(finding["tables"][0])
        for row in titled.rows
    ]
