"""``report``: the result of an experiment as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.ask.experiment import Name
from privateer_lab.cli.options import URL, Url
from privateer_lab.cli.output import screen


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    name: Name,
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="The file; NAME.html by default.")] = None,
    url: Url = URL,
) -> None:
    """Write what an experiment asked and learned as one HTML file: people, policy, estimates, warnings, privacy."""
    where = out or Path(f"{Path(name).name}.html")
    if where.is_dir():
        raise SpecError(f"{where} is a folder", field="--out", remedy="name a file")
    if not where.parent.is_dir():
        raise SpecError(f"there is no folder {where.parent}", field="--out", remedy="make it, or name another one")
    write(name, url, where)


def write(name: str, url: str, where: Path) -> None:
    """Write the report of an experiment to a file."""
    from privateer_lab.pages.report.findings import findings
    from privateer_lab.pages.report.page import html

    body = html(findings(name, url), url).encode()
    where.write_bytes(body)
    screen.print(f"{where}: {len(body):,} bytes", soft_wrap=True, markup=False)
