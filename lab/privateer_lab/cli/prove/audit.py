"""``audit``: attack the product's own privacy claims."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from privateer_core.errors import SpecError
from privateer_lab.cli.options import Json
from privateer_lab.cli.output import print_json, progress, readable, screen

if TYPE_CHECKING:
    from privateer_lab.audit.finding import AuditFinding


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    mechanism: Annotated[
        list[str], typer.Option(help="Attack this mechanism or algorithm alone; may be repeated.")
    ] = [],  # noqa: B006
    samples: Annotated[int, typer.Option(min=1000, help="Reports of each neighbour, where they are cheap.")] = 200_000,
    as_json: Json = False,
) -> None:
    """Attack every claim through the code that devices and services run; exit code 1 if one is broken."""
    from privateer_lab.audit.suite import audit as run_audit
    from privateer_lab.audit.suite import mechanisms, summary

    known = mechanisms()
    if set(mechanism) - known:
        remedy = f"choose from {', '.join(sorted(known))}"
        raise SpecError("no such mechanism or algorithm", field="--mechanism", remedy=remedy)
    total, findings = run_audit(samples, set(mechanism) or known)
    found = progress(findings, total, "attacks")
    if len(found) < total:
        raise typer.Exit(130)
    result = summary(found)
    print_json(result) if as_json else _print(found)
    if result["unsafe"] and not as_json:
        screen.print(f"broken as its paper has it, in simulation alone: {', '.join(result['unsafe'])}")
    if not result["holds"]:
        if not as_json:
            screen.print(f"broken: {', '.join(result['broken'])}")
        raise typer.Exit(1)


def _print(found: list["AuditFinding"]) -> None:
    table = Table(title="audit", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("mechanism", "attack", "claimed", "proved", "law", "samples", "verdict"):
        justify: Literal["left", "right"] = "right" if name in ("proved", "law", "samples") else "left"
        table.add_column(name, justify=justify, no_wrap=name != "attack")
    for row in found:
        claimed = "" if row.epsilon is None else f"{row.epsilon:.4g}" + (f", {row.delta:g}" if row.delta else "")
        proved = "" if row.lower_bound is None else f"{row.lower_bound:z.3f}"
        verdict = row.verdict if row.holds else row.verdict.upper()
        terms = "" if row.model == "any" else f"{row.model}, {row.calibration}: "
        law = "" if row.law is None else f"{row.law:.2g}"
        table.add_row(row.mechanism, terms + row.attack, claimed, proved, law, readable(row.samples), verdict)
    screen.print(table)
