"""``doctor``, ``backup``, ``restore`` and ``token``: commands for operators of services."""

import os
import resource
import shlex
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from privateer_core.errors import SpecError
from privateer_lab.cli import command_line as options
from privateer_lab.cli.output import announce_task, print_json, screen
from privateer_lab.services.rest import admin_headers, download
from privateer_server.admin_tokens import Scope, create_token, format_time


class ServiceName(StrEnum):
    """A service whose settings are in the environment."""

    server = "server"
    shuffler = "shuffler"
    issuer = "issuer"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (doctor, backup, restore):
        app.command()(command)
    tokens.command()(new)
    app.add_typer(tokens, name="token")


def doctor(
    service: Annotated[
        ServiceName | None,
        Argument(
            metavar="SERVICE", help="Look at this one by its PRIVATEER_ settings; by default at those of privateer up."
        ),
    ] = None,
    data: Annotated[
        Path | None, Option(help="The folder of privateer up, or that of the one service.", show_default="data")
    ] = None,
    server_port: options.ServerPort = 8000,
    shuffler_port: options.ShufflerPort = 8001,
    admin_port: options.AdminPort = 8002,
    shuffler_admin_port: options.ShufflerAdminPort = 8003,
    issuer_port: options.IssuerPort = 8004,
    issuer_admin_port: options.IssuerAdminPort = 8005,
    as_json: options.Json = False,
) -> None:
    """Look for what is wrong with services, running or stopped, and change nothing. Exit code 1: something fails."""
    from privateer_lab.doctor.checkup import Level
    from privateer_lab.doctor.places import find_started_services, service_places
    from privateer_lab.doctor.services import examine_all

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # copies of what the services keep are in memory
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if value}
    if service:
        locations = service_places(service.value, environment, data)
    else:
        ports = (server_port, shuffler_port, admin_port, shuffler_admin_port)
        locations = find_started_services(data or Path("data"), ports, (issuer_port, issuer_admin_port), environment)
    if not as_json:
        announce_task("looking at services, files and keys", "a few seconds, longer where somebody does not answer")
    findings = examine_all(locations)
    worst_level = max(finding.level for finding in findings)
    if as_json:
        print_json({"status": worst_level.name.lower(), "checks": [finding.document() for finding in findings]})
    else:
        for finding in findings:
            typer.echo(finding.format_line())
    if worst_level is Level.FAIL:
        raise typer.Exit(1)


def backup(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder without a backup.")],
    token: options.Token = None,
    admin_url: options.AdminUrl = options.ADMIN_URL,
) -> None:
    """Copy the database of a running server. A server on the copy gives up the rounds that are open now."""
    from privateer_server.store.backup import MEDIA_TYPE, check_intact, durable_file
    from privateer_server.store.schema import STORE_FILE

    path = folder / STORE_FILE
    if path.exists():
        raise SpecError(f"there is a {STORE_FILE} already", field="DIR", remedy="name another folder")
    with download(f"{admin_url}/backup", MEDIA_TYPE, field="--admin-url", headers=admin_headers(token)) as chunks:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with durable_file(path) as draft:
            with draft.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    os.fdatasync(file.fileno())  # all at the end would keep a server's commits on this disk waiting
            check_intact(draft)
    screen.print(f"{path}: {path.stat().st_size:,} bytes", soft_wrap=True)


def restore(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder of the backup.")],
    data: Annotated[Path, Argument(metavar="DATA", help="An empty folder, on which a server may start.")],
) -> None:
    """Make a data folder from a backup. When the server starts it gives up the rounds that were open."""
    from privateer_server.store.backup import restore as restore_backup
    from privateer_server.store.schema import STORE_FILE, STORE_KIND

    restore_backup(folder / STORE_FILE, data, STORE_KIND)
    identity = os.environ.get("PRIVATEER_PUBLICATION_KEY")
    variables = {"PRIVATEER_DATA": str(data)} | ({"PRIVATEER_PUBLICATION_KEY": identity} if identity else {})
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    key = "" if identity else ", and PRIVATEER_PUBLICATION_KEY to the old identity.key, which no backup has"
    screen.print(
        f"restored. Start it with: {settings} privateer serve server\n"
        f"If you have the old journal.db, set PRIVATEER_JOURNAL to it first{key}. "
        "Under privateer up, restore into data/server.",
        soft_wrap=True,
        markup=False,
    )


_DAY_SECONDS = 86_400
tokens = typer.Typer(help="Make admin tokens of a server.", no_args_is_help=True)


@tokens.callback()
def _group() -> None: ...


def new(
    name: Annotated[str, Argument(metavar="NAME", help="Owner or purpose of the token; the log of changes shows it.")],
    scope: Annotated[list[Scope], Option(help="What it may do. May be repeated.")],
    days: Annotated[int, Option(min=1, max=3650, help="Days after which it expires.")] = 90,
    as_json: options.Json = False,
) -> None:
    """Make an admin token. It is shown once: the server's file gets a digest of it."""
    expires = time.time() + days * _DAY_SECONDS
    try:
        secret, admin_token = create_token(name, scope, expires)
    except ValueError as error:
        raise SpecError(str(error), field="NAME", remedy="use a name such as alice or backup") from None
    if as_json:
        print_json({"token": secret, "line": admin_token.to_line(), "expires": format_time(expires)})
        return
    typer.echo(f"The token, which nobody can show again:\n  {secret}\n")
    typer.echo(f"Add this line to the file at the server's PRIVATEER_ADMIN_TOKENS:\n  {admin_token.to_line()}")
