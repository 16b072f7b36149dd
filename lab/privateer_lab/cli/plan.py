"""``plan``: what an experiment would cost and earn under other promises."""

import math
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from privateer_core.answer.facts import Table as TypedTable
from privateer_core.errors import SpecError, printable
from privateer_core.privacy.order import concerns_of
from privateer_core.spec.privacy import BATCH_MAX
from privateer_core.spec.spec import Spec
from privateer_lab.answer_tables import rows_of
from privateer_lab.cli.command_line import Jobs, Json, On, PeopleSpec, Population, Seeds, Set, Users
from privateer_lab.cli.input_files import load_spec
from privateer_lab.cli.output import open_folder, print_json, print_rows, progress, screen
from privateer_lab.environments import check_files, with_people
from privateer_lab.figures import margin, readable
from privateer_lab.planning import first_look
from privateer_lab.planning.first_look import begun, so_far
from privateer_lab.planning.first_rounds import first_rounds
from privateer_lab.planning.least_batches import batches
from privateer_lab.planning.plans import (
    EPSILON_MAX,
    EPSILONS,
    MODELS,
    SEEDS,
    SHARES,
    Came,
    PlanResults,
    Refused,
    Variant,
    foreseen,
    possible,
    runs_of,
    stages,
)
from privateer_lab.simulation.delayed_reports import assumed
from privateer_lab.simulation.parallel import Backend

_GAIN: Final = (
    "The gain is the share of what the best policy earns above the best constant option, over the whole run.\n"
    '"{what} to 50%" says after how many {what} the policy earns half of that; "more" means not within this run.'
)

_MANY: Final = 10
"""Seeds from which Student's interval is at most a sixth wider than a normal one."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    spec: PeopleSpec,
    models: Annotated[str, typer.Option(help="Trust models, separated by commas.")] = ",".join(MODELS),
    epsilons: Annotated[str, typer.Option(help="Values of epsilon, separated by commas.")] = ",".join(
        map(str, EPSILONS)
    ),
    population: Population = None,
    users: Users = None,
    seeds: Seeds = SEEDS,
    plot: Annotated[Path | None, typer.Option(help="Draw regret against people, as PNG and SVG of this name.")] = None,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Show regret, people needed and batches needed under several promises, before anybody is asked for data.

    A first table comes after a few seeds, and a better one each time that there are twice as many.
    """
    started = time.perf_counter()
    parsed, promises = load_spec(spec, settings, users), _epsilons(epsilons)
    if population is not None:
        parsed = with_people(parsed, population)
    check_files(parsed)
    wanted, refused = possible(parsed, _models(models), promises)
    if plot is not None:
        open_folder(plot.parent, "--plot")
    report = _Report(parsed, wanted, refused, seeds, as_json)
    if not as_json:
        people = f"{parsed.experiment.horizon:,} {report.what}"
        typer.echo(f"privateer: simulating {people} under {len(wanted)} promises ...", err=True)
        report.look(jobs, backend)
    report.foresee(jobs, backend)
    with closing(runs_of(wanted, seeds, jobs, backend, report.done)) as runs:
        report.follow(runs, started)
    if as_json:
        print_json(report.result())
    if plot is not None:
        _draw(report.found.outcomes(), parsed.name, report.what, plot)
    if report.found.seeds < seeds:
        raise typer.Exit(130)


class _Report:
    """What is known so far, and what of it has been said."""

    def __init__(self, spec: Spec, wanted: list[Variant], refused: list[Refused], seeds: int, quiet: bool) -> None:
        self.spec, self.wanted, self.seeds = spec, wanted, seeds
        self.stages = [seeds] if quiet else stages(seeds)
        self.quiet, self.said, self.done = quiet, 0, 0
        self.what = "people" if spec.people_key == "horizon" else "choices"
        self.found, self.batches = PlanResults(wanted, refused), batches(wanted)
        self.first_rounds = first_rounds(wanted)
        self.foreseen: list[dict[str, Any]] = []

    def look(self, jobs: int | None, backend: Backend) -> None:
        """Run each promise once, for a few seconds; say what came of it unless the table to come says the same."""
        with closing(begun(self.wanted, jobs, backend, first_look.SECONDS)) as coming:
            runs = progress(coming, len(self.wanted), "first runs")
        for one in runs:
            if isinstance(one.run, SpecError):
                self.found.take(*one.came)
        if len(runs) < len(self.wanted):
            raise typer.Exit(130)
        if all(one.whole for one in runs):
            self.done = 1
            for one in runs:
                self.found.take(*one.came)
        if not self.done or self.seeds > 1:
            _print_first_look(so_far(self.wanted, runs), self.spec, self.what, whole=bool(self.done))

    def foresee(self, jobs: int | None, backend: Backend) -> None:
        """Compute what can be found under each promise."""
        self.foreseen = foreseen([one for one in self.wanted if not self.found.refuses(one)], jobs, backend)

    def follow(self, runs: Iterator[Came], started: float) -> None:
        """Take runs until all have come or somebody interrupts, and print a table at each stage."""
        for stage in self.stages:
            total = self.found.total * self.seeds
            progress(self.found.until(stage, runs), total, "runs", self.found.runs)
            if not self.quiet and (self.found.seeds > self.said or not self.said):
                self._print()
            if self.found.seeds < stage:
                return
            if not self.quiet and stage < self.seeds:
                seconds = time.perf_counter() - started
                after = self.stages[self.stages.index(stage) + 1]
                typer.echo(
                    f"privateer: {self.found.runs} of {self.found.total * self.seeds} runs in {seconds:.0f} s. "
                    f"A table of {after} seeds comes next; Ctrl-C keeps this one.",
                    err=True,
                )

    def result(self) -> dict[str, Any]:
        """Return all figures of the seeds so far."""
        # Promises may change the sizes of rounds.
        concerns = list(dict.fromkeys(concern for variant in self.wanted for concern in concerns_of(variant.spec)))
        outcomes = self.found.outcomes()
        return {
            "experiment": self.spec.name,
            "outcomes": outcomes,
            "refused": self.found.refused,
            "assumed": assumed(self.spec),
            "foreseen": msgspec.to_builtins(self.foreseen),
            "batches": self.batches,
            "first_rounds": self.first_rounds,
            "warnings": [*concerns, *self.found.warnings()],
        }

    def _print(self) -> None:
        """Print a table, and with the first one what its columns mean."""
        result = self.result()
        _print_table(result, self.what, self.seeds)
        if not self.said:
            _explain(result, self.what)
        self.said = max(1, self.found.seeds)


def _models(text: str) -> list[str]:
    found = [model for model in MODELS if model in text.split(",")]
    if len(found) < len(set(text.split(","))):
        detail = "must be trust models that promise something"
        raise SpecError(detail, field="--models", remedy=f"choose from {','.join(MODELS)}")
    return found


def _epsilons(text: str) -> list[float]:
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(0 < one <= EPSILON_MAX for one in found):
        raise SpecError(f"must be numbers above 0, at most {EPSILON_MAX}", field="--epsilons", remedy="write .5,1,2")
    return found


def _print_table(result: dict[str, Any], what: str, seeds: int) -> None:
    table = Table(title=result["experiment"], title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model")
    needed = [f"{what} to {share:.0%}" for share in SHARES]
    for heading in ("epsilon", "regret", "95 %", "worst", "gain", *needed):
        table.add_column(heading, justify="right")
    for row in result["outcomes"]:
        gain = "" if row["gain"] is None else f"{row['gain']:.0%}"
        figures = (
            f"{row['epsilon']:g}",
            readable(row["regret_mean"]),
            margin(row["regret_ci95"]),
            readable(row["regret_worst"]),
            gain,
        )
        unreached = "" if row["gain"] is None else "more"
        needs = (unreached if value is None else f"{value:,}" for value in row["people_needed"].values())
        table.add_row(row["model"], *figures, *needs)
    for row in result["refused"]:
        table.add_row(row["model"], f"{row['epsilon']:g}", "not possible")
    screen.print(table)
    for row in result["refused"]:
        said = f"{row['model']} at epsilon {row['epsilon']:g} is not possible: {row['why']}"
        screen.print(printable(said), markup=False, soft_wrap=True)
    first = result["outcomes"][0]
    screen.print(_over(min(row["seeds"] for row in result["outcomes"]), seeds))
    screen.print(
        f"Every run has {first['people']:,} {what}. The random policy loses {readable(first['uniform_regret'])}."
    )


def _print_first_look(rows: list[dict[str, Any]], spec: Spec, what: str, *, whole: bool) -> None:
    """Print what one run of each promise has lost so far, and how little that says."""
    table = Table(title=f"{spec.name}: a first look", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model")
    for heading in ("epsilon", "regret so far", "less than chance"):
        table.add_column(heading, justify="right")
    for row in rows:
        less = f"{1 - row['regret'] / row['uniform_regret']:.0%}" if row["uniform_regret"] > 0 else ""
        table.add_row(row["model"], f"{row['epsilon']:g}", readable(row["regret"]), less)
    screen.print(table)
    people = f"all {rows[0]['people']:,}" if whole else f"the first {rows[0]['people']:,} of"
    people += "" if whole else f" {spec.experiment.horizon:,}"
    screen.print(
        f"This is one run of each promise, over {people} {what}. One run has no interval: small differences may be "
        f"chance.\nChance, the random policy, has lost {readable(rows[0]['uniform_regret'])} by then. "
        f"Tables of {'several' if whole else 'whole'} runs come next."
    )


def _over(seeds: int, wanted: int) -> str:
    """Say how many seeds the means are over, and how sure that makes them."""
    if seeds == 1:
        return f"These are the figures of 1 seed{' of ' + str(wanted) if wanted > 1 else ''}, so there is no interval."
    so_far = f"the first {seeds} of {wanted}" if seeds < wanted else str(seeds)
    wide = "; few seeds make it wide" if seeds < _MANY else ""
    return (
        f"These are means over {so_far} seeds. The true mean is within ± in about 19 of 20 cases (Student's t){wide}."
    )


def _explain(result: dict[str, Any], what: str) -> None:
    if all(row["gain"] is None for row in result["outcomes"]):
        screen.print("The best policy is a constant option, so no policy gains anything above it.")
    else:
        screen.print(_GAIN.format(what=what))
    _print_foreseen(result["foreseen"])
    if result["first_rounds"]:
        print_rows("what a first round asks for", result["first_rounds"])
    for row in result["batches"]:
        screen.print(_batches(row))
    for line in result["assumed"]:
        screen.print(line, soft_wrap=True)
    for warning in result["warnings"]:
        screen.print(f"warning: {warning}")


def _print_foreseen(foreseen: list[dict[str, Any]]) -> None:
    """Print what is found under each promise; promises that find the same have one table."""
    tables = [(found, promise) for promise in foreseen for found in promise["tables"]]
    while tables:
        first = tables[0][0]
        alike = [f"{promise['model']} at epsilon {promise['epsilon']:g}" for found, promise in tables if found == first]
        (titled,) = rows_of(msgspec.convert(first, TypedTable))
        print_rows(titled.title if len(alike) == len(foreseen) else f"{', '.join(alike)}: {titled.title}", titled.rows)
        tables = [(found, promise) for found, promise in tables if found != first]


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
            axis.plot(people, mean, color=colour, label=f"epsilon {row['epsilon']:g}")
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
