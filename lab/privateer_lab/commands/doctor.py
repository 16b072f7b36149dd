"""``doctor``: what is wrong with the services of this machine, and what to do about it."""

import os
import resource
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privateer_lab.commands.options import Json
from privateer_lab.output import print_json


class Service(StrEnum):
    """A service whose settings are in the environment."""

    server = "server"
    shuffler = "shuffler"
    issuer = "issuer"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    service: Annotated[
        Service | None,
        typer.Argument(help="Look at this one by its PRIVATEER_ settings; by default at those of privateer up."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of privateer up, or that of the one service.", show_default="data")
    ] = None,
    server_port: Annotated[int, typer.Option(min=1, max=65535, help="The server's port.")] = 8000,
    shuffler_port: Annotated[int, typer.Option(min=1, max=65535, help="The shuffler's port.")] = 8001,
    admin_port: Annotated[int, typer.Option(min=1, max=65535, help="The server's private port.")] = 8002,
    shuffler_admin_port: Annotated[int, typer.Option(min=1, max=65535, help="The shuffler's private port.")] = 8003,
    as_json: Json = False,
) -> None:
    """Look for what is wrong with services, running or stopped, and change nothing. Exit code 1: something fails."""
    from privateer_lab.doctor.findings import Level
    from privateer_lab.doctor.places import of_environment, of_up

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # copies of what the services keep are in memory
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if value}
    if service:
        places = of_environment(service.value, environment, data)
    else:
        ports = (server_port, shuffler_port, admin_port, shuffler_admin_port)
        places = of_up(data or Path("data"), ports, environment)
    findings = places.examine()
    worst = max(one.level for one in findings)
    if as_json:
        print_json({"status": worst.name.lower(), "checks": [one.document() for one in findings]})
    else:
        for one in findings:
            typer.echo(one.line())
    if worst is Level.FAIL:
        raise typer.Exit(1)
