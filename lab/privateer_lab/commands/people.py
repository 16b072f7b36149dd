"""``simulate`` and ``load``: simulated people, in this process or over HTTP."""

import time
from pathlib import Path
from typing import Annotated

import typer

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer.phased import PhasedSpec
from privateer_lab.baselines import chosen
from privateer_lab.baselines.run import play, summaries
from privateer_lab.baselines.table import print_baselines
from privateer_lab.commands.experiments import Jobs, Json, On, Set
from privateer_lab.output import print_json, print_table, progress, screen
from privateer_lab.parallel import SEEDS_MAX
from privateer_lab.phased import simulation as phased
from privateer_lab.simulation import simulate as runs_of
from privateer_lab.simulation import summary
from privateer_lab.specs import load_any_spec


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(simulate)
    app.command(
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        help="Drive simulated people over HTTP through the real client: privateer load NAME --users N.",
    )(load)


def simulate(
    spec: Annotated[Path, typer.Argument(help="TOML file with a population section.")],
    users: Annotated[int | None, typer.Option(min=1, help="People; default: as the spec says.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="Independent runs.")] = 1,
    jobs: Jobs = None,
    backend: On = "processes",
    settings: Set = [],  # noqa: B006 - typer's way to say none
    reference: Annotated[list[str], typer.Option(help="Another policy beside it, or all; docs/references.md.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Run an experiment in this process."""
    parsed = load_any_spec(spec, settings, users)
    names = _baselines(reference, parsed)
    started = time.perf_counter()
    if isinstance(parsed, PhasedSpec):
        phases = progress(phased.simulate(parsed, seeds, jobs, backend), seeds, "runs")
        result = phased.summary(parsed, phases, started)
    else:
        result = summary(progress(runs_of(parsed, seeds, jobs, backend), seeds, "runs"), started)
    whole = result["seeds"] == seeds
    result = {"experiment": parsed.experiment.name, **parsed.privacy.model_dump(), **result}
    if names and isinstance(parsed, Spec) and whole:
        others = progress(play(parsed, names, seeds, jobs, backend), seeds, "references")
        result["references"] = summaries(others)
    if as_json:
        print_json(result)
    else:
        shown = [(key, value) for key, value in result.items() if not isinstance(value, list | dict)]
        print_table(parsed.experiment.name, shown)
        for warning in result.get("warnings", []):
            screen.print(f"warning: {warning}")
        print_baselines(result)
    if not whole:
        raise typer.Exit(130)


def _baselines(names: list[str], spec: Spec | PhasedSpec) -> list[str]:
    if isinstance(spec, Spec):
        return chosen(names, spec)
    if names:
        raise SpecError("references are for the partition algorithm", field="--reference", remedy="leave it out")
    return []


def load(context: typer.Context) -> None:
    """Hand the arguments to the load driver, which devices' images run without the lab."""
    from privateer_lab.load.command import main

    main(context.args)
