"""``peers``: an experiment beside others' libraries, with the same people."""

from typing import cast

import typer

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.cli.options import Json, PeopleSpec, Seeds, Set, Users
from privateer_lab.cli.output import print_json, print_rows, progress, readable
from privateer_lab.cli.spec_files import load_spec


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(peers)


def peers(
    spec: PeopleSpec,
    users: Users = None,
    seeds: Seeds = 2,
    settings: Set = [],  # noqa: B006 - typer's way to say none
    as_json: Json = False,
) -> None:
    """Compare an experiment with Vowpal Wabbit and mabwiser, which have no privacy, with the same simulated people."""
    from privateer_lab.baselines.peers import compare, contestants, side_by_side

    parsed = load_spec(spec, settings, users)
    makers = contestants(parsed)
    rows = progress(compare(cast(ArmsSpec, parsed), makers, seeds), seeds * len(makers), "runs")
    found = side_by_side(rows, parsed.experiment.horizon)
    if as_json:
        print_json({"experiment": parsed.name, "people": parsed.experiment.horizon, "seeds": seeds, "policies": found})
    else:
        print_rows("the same people, a second of processor time", [_row(*one) for one in found.items()])
    if len(rows) < seeds * len(makers):
        raise typer.Exit(130)


def _row(name: str, figures: dict[str, float | None]) -> dict[str, object]:
    half = figures["regret_ci95"]
    return {
        "policy": name,
        "regret": figures["regret_mean"],
        "95 % interval": "" if half is None else f"± {readable(half)}",
        "decisions a second": figures["decisions_per_second"],
        "and learning": figures["people_per_second"],
    }
