"""``analyze``: the effects of a finished test, from a file of its rows."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from typer import Argument, Option

from privateer_core.errors import SpecError
from privateer_lab.analysis.ab_test_analysis import analyze as analyze_rows
from privateer_lab.cli.command_line import Cluster, Control, Json, LowerIsBetter, Missing, Person
from privateer_lab.cli.output import print_json, print_lines
from privateer_lab.render.documents import write_finished
from privateer_lab.render.terminal import print_document
from privateer_lab.tables.rewards import parse_bounds


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    data: Annotated[Path, Argument(metavar="DATA", help="A CSV or Parquet file: a row a person.")],
    arm: Annotated[str, Option(help="Column of the option that a person got.")] = "arm",
    reward: Annotated[str, Option(help="Column of what came of it: no or yes, or a number.")] = "reward",
    control: Control = None,
    segment: Annotated[
        list[str],
        Option(help="Column that divides people: country, country=de,fr,other or age=30,50. May be repeated."),
    ] = [],  # noqa: B006 - typer's way to say none
    share: Annotated[
        list[str], Option(help="Share of people that an option was meant to get, or ratio: new=0.1. May be repeated.")
    ] = [],  # noqa: B006
    bounds: Annotated[str | None, Option(metavar="LOW:HIGH", help="Clip rewards to these bounds, as in 0:500.")] = None,
    person: Person = None,
    cluster: Cluster = None,
    per: Annotated[
        str | None, Option(metavar="COLUMN", help="Column by which the reward is divided, as clicks by views.")
    ] = None,
    adjust: Annotated[
        list[str],
        Option(metavar="COLUMN", help="Column measured before people got an option, to adjust by. May be repeated."),
    ] = [],  # noqa: B006
    yes: Annotated[
        str | None, Option(metavar="VALUE", help="Value of the reward that counts as 1, all others as 0: cured.")
    ] = None,
    missing: Missing = [],  # noqa: B006
    missing_as: Annotated[
        str | None,
        Option(metavar="low|high|VALUE", help="What a missing reward counts as; by default its row counts nowhere."),
    ] = None,
    decimal: Annotated[
        str | None, Option(metavar="SIGN", help="Decimal sign of a CSV file's numbers, found by default: , or .")
    ] = None,
    epsilon: Annotated[
        float | None, Option(min=0.01, help="Add a curator's noise, so that the answer keeps this promise.")
    ] = None,
    lower_is_better: LowerIsBetter = False,
    level: Annotated[float, Option(help="One minus the confidence of intervals.")] = 0.05,
    as_json: Json = False,
) -> None:
    """Show the effects of a randomized test that is over, from its rows: how much, how sure, for whom."""
    test = analyze_rows(
        data,
        arm=arm,
        reward=reward,
        control=control,
        segments=dict(map(_parse_segment, segment)),
        shares=dict(map(_parse_share, share)) or None,
        bounds=None if bounds is None else _parse_bounds(bounds, reward),
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
        answers = {"answer": test.answer, "unadjusted": test.unadjusted}
        print_json({"assumed": list(test.assumed), "rests": test.rests, **msgspec.to_builtins(answers)})
        return
    name = f"{reward} per {per}" if per else reward
    effects = f"effects, how much lower {name} is," if lower_is_better else "effects"
    print_document(write_finished(test.result.conclusion, test.answer, test.rests, effects))
    print_lines(test.assumed)


def _parse_segment(text: str) -> tuple[str, list[str] | list[float]]:
    """Parse a column with optional values or cuts."""
    name, _, entries = text.partition("=")
    values = [entry.strip() for entry in entries.split(",") if entry.strip()]
    try:
        return name, [float(entry) for entry in values]
    except ValueError:
        return name, values


def _parse_share(text: str) -> tuple[str, float]:
    """Parse option=share into a name and a number; refuse other texts."""
    name, separator, value = text.rpartition("=")
    try:
        return name, float(value if separator else "")
    except ValueError:
        remedy = "write option=share, as in new=0.1"
        raise SpecError("cannot read it", field="--share", remedy=remedy) from None


def _parse_bounds(text: str, reward: str) -> tuple[float, float]:
    """Parse the reward's bounds; refuse those of another column."""
    name, bounds = parse_bounds(text)
    if name not in (None, reward):
        raise SpecError("is not of the reward", field="--bounds", remedy=f"write low:high, or {reward}=low:high")
    return bounds
