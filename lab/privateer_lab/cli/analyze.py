"""``analyze``: the effects of a test that has been run, from a file of its rows."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from privateer_core.errors import SpecError, printable
from privateer_lab.cli.command_line import Cluster, Json, LowerIsBetter, Missing, Person
from privateer_lab.cli.output import print_json, screen
from privateer_lab.finished_test import analyze as analyzed
from privateer_lab.tables.rewards import parse_bounds
from privateer_lab.terminal import print_finished


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file: a row a person.")],
    arm: Annotated[str, typer.Option(help="Column of the option that a person got.")] = "arm",
    reward: Annotated[str, typer.Option(help="Column of what came of it: no or yes, or a number.")] = "reward",
    control: Annotated[
        str | None, typer.Option(help="Option with which the others are compared; the first by name by default.")
    ] = None,
    segment: Annotated[
        list[str],
        typer.Option(
            help="Column to tell effects apart by: country, country=de,fr,other or age=30,50. May be repeated."
        ),
    ] = [],  # noqa: B006 - typer's way to say none
    share: Annotated[
        list[str],
        typer.Option(help="Share of people that an option was meant to get, or ratio: new=0.1. May be repeated."),
    ] = [],  # noqa: B006
    bounds: Annotated[
        str | None, typer.Option(metavar="LOW:HIGH", help="Clip rewards to these bounds, as in 0:500.")
    ] = None,
    person: Person = None,
    cluster: Cluster = None,
    per: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column by which the reward is divided, as clicks by views.")
    ] = None,
    adjust: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN", help="Column measured before people got an option, to adjust by. May be repeated."
        ),
    ] = [],  # noqa: B006
    yes: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Value of the reward that counts as 1, all others as 0: cured.")
    ] = None,
    missing: Missing = [],  # noqa: B006
    missing_as: Annotated[
        str | None,
        typer.Option(
            metavar="low|high|VALUE", help="What a missing reward counts as; by default its row counts nowhere."
        ),
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(metavar="SIGN", help="Decimal sign of a CSV file's numbers, found by default: , or .")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(min=0.01, help="Add a curator's noise, so that the answer keeps this promise.")
    ] = None,
    lower_is_better: LowerIsBetter = False,
    level: Annotated[float, typer.Option(help="One minus the confidence of intervals.")] = 0.05,
    as_json: Json = False,
) -> None:
    """Show the effects of a randomized test that is over, from its rows: how much, how sure, for whom."""
    found = analyzed(
        data,
        arm=arm,
        reward=reward,
        control=control,
        segments=dict(map(_segment, segment)),
        shares=dict(map(_share, share)) or None,
        bounds=None if bounds is None else _bounds(bounds, reward),
        epsilon=epsilon,
        level=level,
        lower_is_better=lower_is_better,
        person=person,
        cluster=cluster,
        per=per,
        adjust=adjust,
        yes=yes,
        missing=missing,
        missing_as=missing_as,
        decimal=decimal,
    )
    if as_json:
        answers = {"answer": found.answer, "unadjusted": found.unadjusted}
        print_json({"assumed": list(found.assumed), "rests": found.rests, **msgspec.to_builtins(answers)})
        return
    name = f"{reward} per {per}" if per else reward
    effects = f"effects, how much lower {name} is," if lower_is_better else "effects"
    print_finished(found.found.conclusion, found.answer, found.rests, effects)
    for line in found.assumed:
        screen.print(printable(line), soft_wrap=True, markup=False)


def _segment(text: str) -> tuple[str, list[str] | list[float]]:
    """Read a column, with its values or cuts if there are any."""
    name, _, listed = text.partition("=")
    values = [one.strip() for one in listed.split(",") if one.strip()]
    try:
        return name, [float(one) for one in values]
    except ValueError:
        return name, values


def _share(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        remedy = "write option=share, as in new=0.1"
        raise SpecError("cannot read it", field="--share", remedy=remedy) from None


def _bounds(text: str, reward: str) -> tuple[float, float]:
    name, bounds = parse_bounds(text)
    if name not in (None, reward):
        raise SpecError("is not of the reward", field="--bounds", remedy=f"write low:high, or {reward}=low:high")
    return bounds
