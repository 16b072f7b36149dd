"""``plan``: what an experiment can be expected to earn, in words, and what would change that."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from privateer_core.answer.facts import Table as TypedTable
from privateer_core.errors import printable
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.privacy import BATCH_MAX
from privateer_lab.answer_tables import rows_of
from privateer_lab.cli.chosen_algorithm import candidates, chosen_algorithm, is_to_be_chosen, write_name
from privateer_lab.cli.command_line import Jobs, Json, On, PeopleSpec, Population, Set, Users
from privateer_lab.cli.input_files import spec_of_tables
from privateer_lab.cli.output import begin, open_folder, print_json, print_rows, progress, screen
from privateer_lab.environments import check_files, with_people
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.planning.expectation.choices import VariedSpec, choices_of, listed, peopled
from privateer_lab.planning.expectation.expected import Expectation, expectation
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.expectation.search import SECONDS, Search
from privateer_lab.planning.expectation.tests import found_by_tests, words_of_tests
from privateer_lab.planning.expectation.words import Unit, sentences, shown
from privateer_lab.planning.feature_sets.budget import FeatureBudget, feature_budgets
from privateer_lab.planning.plans import batches, epsilons_of, first_rounds, outcome, trust_models, with_finite
from privateer_lab.simulation.delayed_reports import assumed
from privateer_lab.simulation.parallel import SEEDS_MAX
from privateer_lab.toml_file import read_tables

_PROMISES: Final = ("as it is", "trust", "epsilon")
"""Kinds of changes that are other promises: their regret is drawn."""
_OTHER: Final = "the file has other settings or people"
"""Why the name of an algorithm is not written that was chosen for what options say."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    spec: PeopleSpec,
    models: Annotated[
        str | None, typer.Option(help="Compare these trust models alone, separated by commas, and the spec.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Compare these values of epsilon alone, separated by commas, and the spec.")
    ] = None,
    population: Population = None,
    users: Users = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="How long to compute, on two cores with nothing else to do.")
    ] = SECONDS,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=SEEDS_MAX, help="Run each line so often to its end instead, however long it takes."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw regret against people, as PNG and SVG of this name.")] = None,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Say in words what an experiment can be expected to earn, and what would change that, before you ask anybody."""
    asked_for = (_models(models), _epsilons(epsilons))
    if plot is not None:
        open_folder(plot.parent, "--plot")
    tables = read_tables(spec, settings, "SPEC")
    choice, unwritten = None, ""
    if is_to_be_chosen(tables):
        choice = _chosen(tables, population, users, as_json=as_json)
        is_other = bool(settings or users or population)
        unwritten = _OTHER if is_other else write_name(spec, tables, choice.name)
        tables["algorithm"]["name"] = choice.name
    started = time.process_time()
    parsed = spec_of_tables(tables, spec.parent, users)
    parsed = peopled(parsed) if population is None else with_people(parsed, population)
    check_files(parsed)
    if not as_json:
        takes = (
            f"about {seconds:g} seconds on two quiet cores"
            if seeds is None
            else f"{seeds} whole run{'s' * (seeds > 1)} of each"
        )
        takes += ", and what the promises take that you name" if any(asked_for) else ""
        begin(f"trying {parsed.name} and changes of it on simulated people", takes)
    choices, refused = choices_of(parsed, *asked_for)
    budgets = _budgets(choices)
    limit = seconds if seeds is None and not any(asked_for) else math.inf
    tests = found_by_tests(choices, limit, jobs, backend)
    search = Search(choices, lambda runs, total: progress(runs, total, "runs"), jobs, backend)
    if seeds is None:
        search.within(seconds, started)
    else:
        search.whole(seeds)
    runs, unplayed = search.runs, search.refused
    if 0 in unplayed:
        raise unplayed[0].error
    if 0 not in runs:
        raise typer.Exit(130)
    found = expectation(parsed, choices, runs)
    result = _result(found, choices, runs, tests) | {"features": msgspec.to_builtins(budgets)}
    result |= {"refused": [one.row for one in (*refused, *unplayed.values())]}
    if choice is not None:
        told = {"name": choice.name, "earned": choice.earned, "single": choice.single, "written": not unwritten}
        result |= {"algorithm": told, "words": [*_written(spec, choice, unwritten), *result["words"]]}
    if as_json:
        print_json(result)
    else:
        _print(found, result)
        _print_budgets(budgets, shown(found))
    if plot is not None:
        _draw(result["outcomes"], parsed.name, found.counts, plot)
    if search.is_interrupted:
        raise typer.Exit(130)


def _chosen(tables: dict[str, Any], population: str | None, users: int | None, *, as_json: bool) -> AlgorithmChoice:
    """Choose the algorithm of a spec that leaves it open, for the people that are asked for."""
    if users is not None and isinstance(tables.get("experiment"), dict):
        tables = tables | {"experiment": tables["experiment"] | {ArmsSpec.people_key: users}}
    specs = candidates(tables, population)
    if not as_json:
        begin("trying algorithms on these people", "some seconds")
    return chosen_algorithm(specs)


def _written(path: Path, choice: AlgorithmChoice, unwritten: str) -> list[str]:
    """Say which algorithm was chosen and why, and what was written."""
    if unwritten:
        done = f"Not written into {path}, since {unwritten}: write algorithm.name = {choice.name!r} there yourself."
    else:
        done = f"Wrote algorithm.name = {choice.name!r} into {path}."
    return [done, choice.sentence]


def _budgets(choices: Sequence[VariedSpec]) -> list[FeatureBudget]:
    """Return which features pay under the spec's promise and other trust models, where it chooses by some."""
    own = choices[0].spec
    if not choices[0].is_contextual or not isinstance(own, ArmsSpec) or len(own.features) < 2 or own.sources:
        return []
    return feature_budgets(own, [one.variant for one in choices if one.kind in _PROMISES[:2]])


def _result(
    found: Expectation,
    choices: Sequence[VariedSpec],
    runs: Mapping[int, Sequence[PartialRun]],
    tests: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return all that is said, in words and in figures."""
    spec, variants = choices[0].spec, [choice.variant for choice in choices if choice.kind in _PROMISES]
    outcomes = [
        outcome(choices[place].variant, [one.run for one in some])
        for place, some in sorted(runs.items())
        if choices[place].kind in _PROMISES
    ]
    return {
        "experiment": spec.name,
        "words": [*words_of_tests(spec, tests), *sentences(found)],
        "expected": msgspec.to_builtins(found),
        "people": msgspec.to_builtins(found.people),
        "outcomes": with_finite(outcomes),
        "assumed": assumed(spec),
        "foreseen": msgspec.to_builtins(tests),
        "batches": batches(variants),
        "first_rounds": with_finite(first_rounds(variants)),
        "warnings": _warnings(choice for choice in choices if choice.kind in _PROMISES),
    }


def _warnings(choices: Iterable[VariedSpec]) -> list[str]:
    """Return what probably is not meant, each once; what only a change brings says which one."""
    found: dict[str, str] = {}
    for one in choices:
        for concern in concerns_before_start(one.spec):
            found.setdefault(concern, "" if one.kind == "as it is" else f"with {one.change}: ")
    return [where + concern for concern, where in found.items()]


def _models(text: str | None) -> list[str] | None:
    return None if text is None else trust_models(text.split(","), field="--models")


def _epsilons(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return epsilons_of([float(one) for one in text.split(",")], "--epsilons")
    except ValueError:
        return epsilons_of([], "--epsilons")


def _print(found: Expectation, result: dict[str, Any]) -> None:
    """Print the answer in words, then the figures, then what they rest on."""
    for line in result["words"]:
        screen.print(printable(line), soft_wrap=True, markup=False)
    _print_table(found)
    _print_foreseen(result["foreseen"])
    if result["first_rounds"]:
        print_rows("what a first round asks for", result["first_rounds"])
    for row in result["batches"]:
        screen.print(_batches(row))
    for row in result["refused"]:
        said = f"{_named(row)} is not possible: {row['why']}"
        screen.print(printable(said), markup=False, soft_wrap=True)
    for line in result["assumed"]:
        screen.print(line, soft_wrap=True)
    for warning in result["warnings"]:
        screen.print(f"warning: {warning}")


def _print_table(found: Expectation) -> None:
    unit, what = shown(found), found.counts
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("what is other")
    for heading in (
        "expected",
        "95 %",
        "above the best single",
        "by the end",
        "pays after",
        "runs",
        "learned from",
        "than the spec",
    ):
        table.add_column(heading, justify="right")
    for row in found.rows:
        figures = (
            unit.write(row.value),
            unit.margin(row.margin),
            unit.points(row.gain),
            unit.write(row.value_at_the_end),
            "" if row.pays_after is None else f"{row.pays_after:,}",
            f"{row.runs}",
            f"{row.learned_from:,} of {row.reach:,}" if row.learned_from < row.reach else f"{row.learned_from:,}",
            found.compared(row),
        )
        table.add_row(printable(row.change), *figures)
    screen.print(table)
    screen.print(
        f"'pays after' is how many {what} it takes until the policy earns more than the best single option; nothing: "
        "never in this run. 'level' is what may be chance.",
        soft_wrap=True,
    )


def _print_budgets(budgets: Sequence[FeatureBudget], unit: Unit) -> None:
    """Print which features pay under each promise, and what would change that."""

    def written(value: float | None) -> str:
        return "" if value is None else unit.write(value)

    rows = [
        {
            "promise": _named({"model": one.model, "epsilon": one.epsilon}),
            "features that pay": listed(one.features) if one.features else "no feature",
            "algorithm": one.algorithm,
            "they earn": written(one.value),
            "one option for all": written(one.single),
            "another feature": f"{one.another}: {written(one.with_another)}" if one.another else "",
            "twice the people": written(one.with_twice_people),
            "twice epsilon": written(one.with_twice_epsilon),
        }
        for one in budgets
    ]
    if rows:
        print_rows("features that pay, estimated without runs", rows)


def _print_foreseen(foreseen: list[dict[str, Any]]) -> None:
    """Print what is found under each promise; promises that find the same have one table."""
    tables = [(found, promise) for promise in foreseen for found in promise["tables"]]
    while tables:
        first = tables[0][0]
        alike = [_named(promise) for found, promise in tables if found == first]
        (titled,) = rows_of(msgspec.convert(first, TypedTable))
        print_rows(titled.title if len(alike) == len(foreseen) else f"{', '.join(alike)}: {titled.title}", titled.rows)
        tables = [(found, promise) for found, promise in tables if found != first]


def _named(promise: dict[str, Any]) -> str:
    return str(promise["model"]) + (f" at epsilon {promise['epsilon']:g}" if promise["epsilon"] else "")


def _batches(row: dict[str, Any]) -> str:
    """Say which batches let a report cost more than the promise by itself."""
    epsilon, limit = row["epsilon"], row["local_epsilon_max"]
    if limit <= epsilon:
        return f"A shuffled promise of epsilon {epsilon:g} lets no report cost more by itself: see local_epsilon_max."
    costs = {2 * epsilon: row["min_batch_to_double"], limit: row["min_batch_at_max"]}
    said = [
        f"{cost:g} if min_batch is at least {batch:,}"
        if batch is not None
        else f"{cost:g} with no min_batch up to {BATCH_MAX:,}"
        for cost, batch in costs.items()
        if cost <= limit
    ]
    return f"A shuffled promise of epsilon {epsilon:g} lets a report of one message cost epsilon {', and '.join(said)}."


def _draw(outcomes: list[dict[str, Any]], name: str, what: str, path: Path) -> None:
    from privateer_lab.pages.plots import COLOURS, panels, save

    models = list(dict.fromkeys(row["model"] for row in outcomes))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in outcomes))
    figure, axes = panels(len(models), f"{name}: mean regret")
    top = max(point["regret_worst"] for row in outcomes for point in row["path"])
    for axis, model in zip(axes, models, strict=True):
        for row in (row for row in outcomes if row["model"] == model):
            people = [point["people"] for point in row["path"]]
            colour = COLOURS[epsilons.index(row["epsilon"]) % len(COLOURS)]
            mean = [point["regret_mean"] for point in row["path"]]
            worst = [point["regret_worst"] for point in row["path"]]
            axis.plot(people, mean, color=colour, label=f"epsilon {row['epsilon']:g}" if row["epsilon"] else "")
            axis.plot(people, worst, color=colour, linewidth=0.7, linestyle=":")
        axis.axhline(
            outcomes[0]["best_constant_regret"] / outcomes[0]["people"], color="#555555", linestyle="--", linewidth=0.8
        )
        axis.set_xscale("log")
        axis.set_ylim(0, top * 1.05)
        axis.set_title(model, fontsize=9)
        axis.set_xlabel(what)
    axes[0].set_ylabel(f"mean regret of all {what} so far")
    # Beside the curves: within the axes it would hide some of them.
    title = "dotted: worst seed\ndashed: best constant option"
    axes[len(models) - 1].legend(title=title, title_fontsize=7, fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    save(figure, path)
