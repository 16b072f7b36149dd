"""``simulate``, ``load`` and ``sweep``: simulated people, in this process or over HTTP."""

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from privateer_core.errors import SpecError
from privateer_lab.baselines import chosen
from privateer_lab.baselines.run import play, summaries
from privateer_lab.baselines.table import print_baselines
from privateer_lab.cli.options import Jobs, Json, On, PeopleSpec, Seeds, Set, Users
from privateer_lab.cli.output import print_json, print_table, progress, screen
from privateer_lab.cli.spec_files import load_spec
from privateer_lab.planning.sweep import SweepJournal, cells, combinations, parse_axes, write_parquet
from privateer_lab.planning.sweep import sweep as rows_of
from privateer_lab.simulation.simulate import figures_of
from privateer_lab.simulation.simulate import simulate as runs_of
from privateer_lab.simulation.summary import summary

_OF_BATCHES: Final = ("min_batch", "honest_fraction", "local_epsilon_max")
"""Keys of a promise that say nothing where reports are not shuffled in batches."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(simulate)
    app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help="Have simulated people take part over HTTP, with the real client: privateer load NAME --users N.",
    )(load)
    app.command()(sweep)


def simulate(
    spec: PeopleSpec,
    users: Users = None,
    seeds: Seeds = 1,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    baseline: Annotated[
        list[str], typer.Option(help="Another policy to compare with, or 'all'; see docs/baselines.md.")
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Run an experiment with simulated people in this process."""
    parsed = load_spec(spec, settings, users)
    names = chosen(baseline, parsed)
    started = time.perf_counter()
    runs = progress(runs_of(parsed, seeds, jobs, backend), seeds, "runs")
    result = {"experiment": parsed.name, **parsed.privacy.model_dump(), **summary(parsed, runs, started)}
    if names and len(runs) == seeds:
        others = progress(play(parsed, names, seeds, jobs, backend), seeds, "baselines")
        result["baselines"] = summaries(others)
    if as_json:
        print_json(result)
    else:
        idle = () if parsed.privacy.trust.batched else _OF_BATCHES
        rows = [(key, value) for key, value in result.items() if key not in idle]
        shown = [(key, value) for key, value in rows if not isinstance(value, list | dict | None)]
        print_table(parsed.name, [(key.replace("_", " "), value) for key, value in shown])
        for line in result["assumed"]:
            screen.print(line, soft_wrap=True)
        for warning in result["warnings"]:
            screen.print(f"warning: {warning}")
        print_baselines(result)
    if len(runs) < seeds:
        raise typer.Exit(130)


def load(context: typer.Context) -> None:
    """Hand the arguments to the load driver, which an image may hold without the rest of the lab."""
    from privateer_lab.load.command import main

    main(context.args)


def sweep(
    spec: PeopleSpec,
    out: Annotated[Path, typer.Option(help="The table, .csv or .parquet; rows are added to one that exists.")],
    vary: Annotated[list[str], typer.Option(help="Values of a key: section.key=value,value. May be repeated.")] = [],  # noqa: B006
    seeds: Seeds = 4,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
) -> None:
    """Run a spec over all combinations of settings. After Ctrl-C the same command goes on where it stopped."""
    if out.suffix not in (".csv", ".parquet"):
        raise SpecError("must end in .csv or .parquet", field="--out", remedy="name such a file")
    axes = parse_axes(vary)
    wanted = cells(((values, load_spec(spec, settings + changes)) for values, changes in combinations(axes)), seeds)
    figures = figures_of(wanted[0].spec)
    path = out if out.suffix == ".csv" else out.with_name(out.name + ".csv")
    with SweepJournal(path, axes, figures) as journal:
        missing = len(journal.missing(wanted))
        done = progress(rows_of(wanted, journal, jobs, backend), missing, "runs")
    if len(done) < missing:
        raise typer.Exit(130)
    if path != out:
        write_parquet(path, out)
    screen.print(f"{out}: {len(wanted)} runs, {missing} of them new")
