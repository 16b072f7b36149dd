"""``spec-from``: a spec from the columns of a CSV file."""

import math
from pathlib import Path
from typing import Annotated

import typer

from privateer_core.errors import SpecError, printable
from privateer_lab.cli.options import Json
from privateer_lab.cli.output import print_json
from privateer_lab.planning.spec_draft import Draft, draft


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("spec-from")(spec_from)


def spec_from(
    data: Annotated[Path, typer.Argument(help="A CSV file with a header, plain or gzipped, or a Parquet file.")],
    name: Annotated[str | None, typer.Option(help="The experiment's name; the file's by default.")] = None,
    arms: Annotated[str, typer.Option(help="Names of the options, separated by commas.")] = "",
    label: Annotated[str | None, typer.Option(help="Column of the class that decides which option is right.")] = None,
    bounds: Annotated[
        list[str], typer.Option(help="Public bounds of a numeric column: hours=0:80. May be repeated.")
    ] = [],  # noqa: B006 - typer's way to say none
    quantiles: Annotated[
        bool, typer.Option("--quantiles", help="Give crowded numbers cut points, not bounds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write the spec to.")] = None,
    as_json: Json = False,
) -> None:
    """Draft a spec from the columns of a CSV or Parquet file; say what comes from the data and would become public."""
    given = dict(_bounds(one) for one in bounds)
    made = draft(
        data,
        name=name or _name(data),
        arms=[arm.strip() for arm in arms.split(",") if arm.strip()],
        label=label,
        bounds=given,
        quantiles=quantiles,
        seen_from=out.parent if out else None,
    )
    if out:
        out.write_text(made.text, encoding="utf-8")
    if as_json:
        print_json({"spec": made.text, "confirm": list(made.confirm), "notes": list(made.notes)})
        return
    if not out:
        typer.echo(made.text, nl=False)
    _explain(made, out)


def _name(data: Path) -> str:
    """Make a name that a spec may have of a file's."""
    letters = "".join(one if one.isascii() and one.isalnum() else "-" for one in data.name.split(".")[0].lower())
    return letters.strip("-")[:63] or "my-experiment"


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    name, _, ends = text.rpartition("=")
    low, _, high = ends.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (math.nan, math.nan)
    if not name or not found[0] < found[1]:
        raise SpecError("cannot read it", field="--bounds", remedy="write column=low:high, as in hours=0:80")
    return name, found


def _explain(made: Draft, out: Path | None) -> None:
    """Say on standard error what somebody has to confirm, so that standard output is the spec alone."""
    lines = [f"Wrote {out}."] if out else []
    if made.confirm:
        lines += ["Everybody may read a spec. These come from the data: change or confirm them before you create it."]
        lines += [f"  {one}" for one in made.confirm]
    for line in [*lines, *made.notes]:
        typer.echo(printable(line), err=True)
