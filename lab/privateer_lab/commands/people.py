"""``simulate`` and ``load``: simulated people, in this process or over HTTP."""

import time
from typing import Annotated, Final

import typer

from privateer_lab.baselines import chosen
from privateer_lab.baselines.run import play, summaries
from privateer_lab.baselines.table import print_baselines
from privateer_lab.commands.options import Jobs, Json, On, PeopleSpec, Seeds, Set, Users
from privateer_lab.output import print_json, print_table, progress, screen
from privateer_lab.simulation import simulate as runs_of
from privateer_lab.specs import load_spec
from privateer_lab.summary import summary

_OF_BATCHES: Final = ("min_batch", "honest_fraction", "local_epsilon_max")
"""Keys of a promise that say nothing where reports are not shuffled in batches."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(simulate)
    app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help="Have simulated people take part over HTTP, with the real client: privateer load NAME --users N.",
    )(load)


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
