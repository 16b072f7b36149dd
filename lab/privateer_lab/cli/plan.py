"""``plan``: the expected reward of an experiment, and of changes to its spec."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from typer import Option

from privateer_core.answer.facts import Table as TypedTable
from privateer_core.errors import printable
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.privacy import BATCH_MAX
from privateer_lab.cli.chosen_algorithm import candidate_specs, is_to_be_chosen, select_algorithm, write_name
from privateer_lab.cli.command_line import Jobs, Json, On, PeopleSpec, Population, Set, Users
from privateer_lab.cli.input_files import spec_from_tables
from privateer_lab.cli.output import announce_task, open_folder, print_json, print_lines, print_rows, progress, screen
from privateer_lab.environments import check_files, with_population
from privateer_lab.planning import plans
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.planning.expectation.choices import VariedSpec, join_names, list_choices, with_default_population
from privateer_lab.planning.expectation.expected import Expectation, Unit, choose_unit, summarize_runs, write_sentences
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.expectation.search import SECONDS, Search, describe_tests, plan_tests
from privateer_lab.planning.feature_sets.budget import FeatureBudget, SurrogateMean, feature_budgets
from privateer_lab.planning.local_caps import LocalCap, compare_caps
from privateer_lab.render.tables import part_tables
from privateer_lab.simulation.delayed_reports import describe_assumptions
from privateer_lab.simulation.parallel import SEEDS_MAX
from privateer_lab.toml_file import read_tables

_PROMISE_KINDS: Final = ("as it is", "trust", "epsilon")
"""Kinds of changes of the privacy promise, whose regret is plotted."""
_LABELLED_KINDS: Final = ("features", "algorithm")
"""Kinds of changes that are named in table rows."""
_UNWRITTEN_REASON: Final = "the file has other settings or people"
"""Reason for not writing the name of an algorithm that was chosen under other options."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    spec: PeopleSpec,
    models: Annotated[
        str | None, Option(help="Compare these trust models alone, separated by commas, and the spec.")
    ] = None,
    epsilons: Annotated[
        str | None, Option(help="Compare these values of epsilon alone, separated by commas, and the spec.")
    ] = None,
    population: Population = None,
    users: Users = None,
    seconds: Annotated[
        float, Option(min=0.1, max=86_400, help="How long to compute, on two cores with nothing else to do.")
    ] = SECONDS,
    seeds: Annotated[
        int | None,
        Option(min=1, max=SEEDS_MAX, help="Instead, run each line to its end so many times, however long it takes."),
    ] = None,
    details: Annotated[
        bool, Option(help="Also print what first rounds ask for, and by which batches a report may cost more.")
    ] = False,
    plot: Annotated[Path | None, Option(help="Draw regret against people, as PNG and SVG of this name.")] = None,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Say what an experiment can be expected to earn, and what would change that, before you ask anybody."""
    model_names = None if models is None else plans.check_trust_models(models.split(","), field="--models")
    requested = (model_names, _parse_epsilons(epsilons))
    if plot is not None:
        open_folder(plot.parent, "--plot")
    tables = read_tables(spec, settings, "SPEC")
    choice, obstacle = None, ""
    if is_to_be_chosen(tables):
        choice = _choose(tables, population, users, as_json=as_json)
        obstacle = _UNWRITTEN_REASON if settings or users or population else write_name(spec, tables, choice.name)
        tables["algorithm"]["name"] = choice.name
    started = time.process_time()
    parsed = spec_from_tables(tables, spec.parent, users)
    parsed = with_default_population(parsed) if population is None else with_population(parsed, population)
    check_files(parsed)
    if not as_json:
        runs_text = f"{seeds} whole run{'s' * (seeds > 1)} of each" if seeds else ""
        duration = runs_text or f"about {seconds:g} seconds on two quiet cores"
        duration += ", and what the promises take that you name" if any(requested) else ""
        announce_task(f"trying {parsed.name} and changes of it on simulated people", duration)
    choices, refused = list_choices(parsed, *requested)
    budgets, caps = _compute_budgets(choices), compare_caps(parsed)
    limit = seconds if seeds is None and not any(requested) else math.inf
    tests = plan_tests(choices, limit, jobs, backend)
    search = Search(choices, lambda runs, total: progress(runs, total, "runs"), jobs, backend)
    if seeds is None:
        search.run_within(seconds, started)
    else:
        search.run_fully(seeds)
    runs, unplayable = search.runs, search.refused
    if 0 in unplayable:
        raise unplayable[0].error
    if 0 not in runs:
        raise typer.Exit(130)
    expected = summarize_runs(parsed, choices, runs)
    result = _build_result(expected, choices, runs, tests) | msgspec.to_builtins({"features": budgets, "caps": caps})
    result |= {"refused": [refused_spec.as_row for refused_spec in (*refused, *unplayable.values())]}
    if choice is not None:
        facts = {"name": choice.name, "earned": choice.rewards, "single": choice.single, "written": not obstacle}
        result |= {"algorithm": facts, "words": [*_algorithm_sentences(spec, choice, obstacle), *result["words"]]}
    if as_json:
        print_json(result)
    else:
        _print_expectation(expected, result, budgets, caps, details=details)
    if plot is not None:
        from privateer_lab.render.pictures import draw_plan, save_figure

        dimension = len(parsed.features) if isinstance(parsed, ArmsSpec) else 0
        save_figure(draw_plan(parsed.name, expected.counts, result["outcomes"], dimension).figure, plot)
    if search.is_interrupted:
        raise typer.Exit(130)


def _choose(tables: dict[str, Any], population: str | None, users: int | None, *, as_json: bool) -> AlgorithmChoice:
    """Choose the algorithm of a spec that leaves it open, for this population."""
    if users is not None and isinstance(tables.get("experiment"), dict):
        tables = tables | {"experiment": tables["experiment"] | {ArmsSpec.people_key: users}}
    specs = candidate_specs(tables, population)
    if not as_json:
        announce_task("trying algorithms on these people", "some seconds")
    return select_algorithm(specs)


def _algorithm_sentences(path: Path, choice: AlgorithmChoice, obstacle: str) -> list[str]:
    """Return sentences about the chosen algorithm, and about writing its name."""
    if obstacle:
        status = f"Not written into {path}, since {obstacle}: write algorithm.name = {choice.name!r} there yourself."
    else:
        status = f"Wrote algorithm.name = {choice.name!r} into {path}."
    return [status, choice.sentence]


def _compute_budgets(choices: Sequence[VariedSpec]) -> list[FeatureBudget]:
    """Return the features that pay under each trust model, if the spec chooses by features."""
    spec = choices[0].spec
    if not choices[0].is_contextual or not isinstance(spec, ArmsSpec) or spec.sources:
        return []
    return feature_budgets(spec, [choice.variant for choice in choices if choice.kind in _PROMISE_KINDS[:2]])


def _build_result(
    expected: Expectation,
    choices: Sequence[VariedSpec],
    runs: Mapping[int, Sequence[PartialRun]],
    tests: list[dict[str, Any]],
) -> dict[str, Any]:
    """Build the JSON document of the plan."""
    spec, variants = choices[0].spec, [choice.variant for choice in choices if choice.kind in _PROMISE_KINDS]
    outcomes = [
        plans.summarize_promise(choices[index].variant, [partial_run.run for partial_run in partial_runs])
        for index, partial_runs in sorted(runs.items())
        if choices[index].kind in _PROMISE_KINDS
    ]
    rows = zip(sorted(runs), expected.rows, strict=True)
    gaining = {index for index, row in rows if row.margin is not None and (row.gains or expected.gains_late(row))}
    return {
        "experiment": spec.name,
        "words": [*describe_tests(spec, tests), *write_sentences(expected)],
        "expected": msgspec.to_builtins(expected),
        "people": msgspec.to_builtins(expected.people),
        "outcomes": plans.drop_infinity(outcomes),
        "assumed": describe_assumptions(spec),
        "foreseen": msgspec.to_builtins(tests),
        "batches": plans.describe_batches(variants),
        "first_rounds": plans.drop_infinity(plans.describe_first_rounds(variants)),
        "warnings": _collect_warnings(
            (choice, index in gaining) for index, choice in enumerate(choices) if choice.kind in _PROMISE_KINDS
        ),
    }


def _collect_warnings(choices: Iterable[tuple[VariedSpec, bool]]) -> list[str]:
    """Return each warning once, of choices and whether they gain; warnings of a change alone name the change."""
    prefixes: dict[str, str] = {}
    for choice, gains in choices:
        for concern in concerns_before_start(choice.spec, gains=gains):
            prefixes.setdefault(concern, "" if choice.kind == "as it is" else f"with {choice.change}: ")
    return [prefix + concern for concern, prefix in prefixes.items()]


def _parse_epsilons(text: str | None) -> list[float] | None:
    """Parse numbers between commas into epsilons, None without a text; refuse others."""
    if text is None:
        return None
    try:
        return plans.check_epsilons([float(number) for number in text.split(",")], "--epsilons")
    except ValueError:
        return plans.check_epsilons([], "--epsilons")


def _print_expectation(
    expected: Expectation,
    result: dict[str, Any],
    budgets: Sequence[FeatureBudget],
    caps: Sequence[LocalCap],
    *,
    details: bool,
) -> None:
    """Print the plan: sentences, figures, assumptions and warnings; at last, with ``details``, rounds and batches."""
    print_lines(result["words"])
    _print_table(expected)
    _print_budgets(budgets, choose_unit(expected), is_made_up=expected.is_made_up)
    _print_caps(caps, details=details)
    _print_foreseen(result["foreseen"])
    print_lines(f"{_format_promise(row)} is not possible: {row['why']}" for row in result["refused"])
    print_lines(result["assumed"])
    for warning in result["warnings"]:
        screen.print(f"warning: {warning}")
    if details and result["first_rounds"]:
        print_rows("what a first round asks for", result["first_rounds"])
    for row in result["batches"] if details else ():
        screen.print(_format_batches(row))


def _print_table(expected: Expectation) -> None:
    """Print the expected rewards of the spec and its variants, with the note on 'pays after'."""
    unit, noun = choose_unit(expected), expected.counts
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("what is other")
    headings = ("expected", "95 %", "above the best single", "by the end", "pays after", "runs", "learned from")
    for heading in (*headings, "than the spec"):
        table.add_column(heading, justify="right")
    for row in expected.rows:
        figures = (
            unit.write(row.value),
            unit.margin(row.margin),
            unit.points(row.gain),
            unit.write(row.value_at_the_end),
            "" if row.pays_after is None else f"{row.pays_after:,}",
            f"{row.runs}",
            f"{row.learned_from:,} of {row.reach:,}" if row.learned_from < row.reach else f"{row.learned_from:,}",
            expected.compare_with_spec(row),
        )
        label = f"{row.kind}: {row.change}" if row.kind in _LABELLED_KINDS else row.change
        table.add_row(printable(label), *figures)
    screen.print(table)
    screen.print(
        f"'pays after' is how many {noun} it takes until the policy earns more than the best single option, and from "
        "there to the end; nothing: it does not, or that may be chance. 'level' is what may be chance among so many "
        "lines; nothing: one run says neither; 'cut short': runs with more time may say otherwise.",
        soft_wrap=True,
    )


def _print_budgets(budgets: Sequence[FeatureBudget], unit: Unit, *, is_made_up: bool) -> None:
    """Print a table of the features that pay under each promise."""
    caution = " for made-up people (which of yours pay, nobody knows yet)" if is_made_up else ""

    def format_estimate(estimate: SurrogateMean | None) -> str:
        return "-" if estimate is None else f"{unit.write(estimate.value)} {unit.margin(estimate.margin)}"

    rows = [
        {
            "promise": _format_promise({"model": budget.model, "epsilon": budget.epsilon}),
            "features that pay": join_names(budget.features) if budget.features else "no feature",
            "algorithm": budget.algorithm,
            "they earn": format_estimate(budget.reward),
            "one option, learned": format_estimate(budget.single),
            "another feature": f"{budget.another}: {format_estimate(budget.with_another)}" if budget.another else "-",
            "twice the people": format_estimate(budget.with_twice_people),
            "twice epsilon": format_estimate(budget.with_twice_epsilon),
        }
        for budget in budgets
    ]
    if rows:
        title = (
            f"features that pay{caution}, estimated without runs; ± is what these people tell, in 19 of 20 cases; "
            "-: no other feature tells, nothing is promised, or it is not possible"
        )
        print_rows(title, rows)


def _print_caps(caps: Sequence[LocalCap], *, details: bool) -> None:
    """Print a table of caps, without those that the batch does not need."""
    distinct = list({cap.local_epsilon: cap for cap in reversed(caps)}.values())[::-1]
    if len(distinct) > 1 or (distinct and details):
        title = f"what a shuffled report may cost by itself in a round of {distinct[0].people_per_round:,}, the largest"
        rows = [
            {
                "privacy.local_epsilon_max": f"{cap.local_epsilon_max:g}",
                "it costs": f"{cap.local_epsilon:g}",
                "people for equal intervals": f"{cap.people_ratio - 1:+.0%}" if round(cap.people_ratio, 2) != 1 else "",
                "right guesses if shuffler and server collude": f"{cap.correct_guess_max:.2%} at most",
            }
            for cap in distinct
        ]
        print_rows(f"{title}; a guess is between two equally likely records of a person", rows)


def _print_foreseen(foreseen: list[dict[str, Any]]) -> None:
    """Print the expected tables of tests, with one table for promises with equal results."""
    tables = [(table, promise) for promise in foreseen for table in promise["tables"]]
    while tables:
        first = tables[0][0]
        promises = [_format_promise(promise) for table, promise in tables if table == first]
        (titled_table,) = part_tables(msgspec.convert(first, TypedTable))
        prefix = "" if len(promises) == len(foreseen) else f"{', '.join(promises)}: "
        print_rows(prefix + titled_table.title, titled_table.rows)
        tables = [(table, promise) for table, promise in tables if table != first]


def _format_promise(promise: dict[str, Any]) -> str:
    return str(promise["model"]) + (f" at epsilon {promise['epsilon']:g}" if promise["epsilon"] else "")


def _format_batches(row: dict[str, Any]) -> str:
    """Return a sentence about the batch sizes with which a single report may cost more than the promise."""
    epsilon, limit = row["epsilon"], row["local_epsilon_max"]
    if limit <= epsilon:
        return f"A shuffled promise of epsilon {epsilon:g} lets no report cost more by itself: see local_epsilon_max."
    costs = {2 * epsilon: row["min_batch_to_double"], limit: row["min_batch_at_max"]}
    limits = ", and ".join(
        f"{cost:g} if min_batch is at least {batch:,}"
        if batch is not None
        else f"{cost:g} with no min_batch up to {BATCH_MAX:,}"
        for cost, batch in costs.items()
        if cost <= limit
    )
    return f"A shuffled promise of epsilon {epsilon:g} lets a report of one message cost epsilon {limits}."
