"""``doctor``, ``backup``, ``restore`` and ``token``: what operators of services need."""

import os
import resource
import shlex
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.command_line import (
    ADMIN_URL,
    AdminPort,
    AdminUrl,
    IssuerAdminPort,
    IssuerPort,
    Json,
    ServerPort,
    ShufflerAdminPort,
    ShufflerPort,
    Token,
)
from privateer_lab.cli.output import begin, print_json, screen
from privateer_lab.services.rest import bearer, download
from privateer_server.admin_tokens import Scope, new_token, shown_time


class ServiceName(StrEnum):
    """A service whose settings are in the environment."""

    server = "server"
    shuffler = "shuffler"
    issuer = "issuer"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(doctor)
    app.command()(backup)
    app.command()(restore)
    tokens.command()(new)
    app.add_typer(tokens, name="token")


def doctor(
    service: Annotated[
        ServiceName | None,
        typer.Argument(
            metavar="SERVICE", help="Look at this one by its PRIVATEER_ settings; by default at those of privateer up."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder of privateer up, or that of the one service.", show_default="data")
    ] = None,
    server_port: ServerPort = 8000,
    shuffler_port: ShufflerPort = 8001,
    admin_port: AdminPort = 8002,
    shuffler_admin_port: ShufflerAdminPort = 8003,
    issuer_port: IssuerPort = 8004,
    issuer_admin_port: IssuerAdminPort = 8005,
    as_json: Json = False,
) -> None:
    """Look for what is wrong with services, running or stopped, and change nothing. Exit code 1: something fails."""
    from privateer_lab.doctor.checkup import Level
    from privateer_lab.doctor.places import of_environment, of_up
    from privateer_lab.doctor.services import examine_all

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # copies of what the services keep are in memory
    environment: Mapping[str, str] = {name: value for name, value in os.environ.items() if value}
    if service:
        places = of_environment(service.value, environment, data)
    else:
        ports = (server_port, shuffler_port, admin_port, shuffler_admin_port)
        places = of_up(data or Path("data"), ports, (issuer_port, issuer_admin_port), environment)
    if not as_json:
        begin("looking at services, files and keys", "a few seconds, longer where somebody does not answer")
    findings = examine_all(places)
    worst = max(one.level for one in findings)
    if as_json:
        print_json({"status": worst.name.lower(), "checks": [one.document() for one in findings]})
    else:
        for one in findings:
            typer.echo(one.line())
    if worst is Level.FAIL:
        raise typer.Exit(1)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder without a backup.")],
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
) -> None:
    """Copy the database of a running server. A server on the copy gives up the rounds that are open now."""
    from privateer_server.store.backup import MEDIA_TYPE, check_complete, durable_file
    from privateer_server.store.schema import FILE

    path = folder / FILE
    if path.exists():
        raise SpecError(f"there is a {FILE} already", field="DIR", remedy="name another folder")
    with download(f"{admin_url}/backup", MEDIA_TYPE, field="--admin-url", headers=bearer(token)) as chunks:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with durable_file(path) as draft:
            with draft.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    os.fdatasync(file.fileno())  # all at the end would keep a server's commits on this disk waiting
            check_complete(draft)
    screen.print(f"{path}: {path.stat().st_size:,} bytes", soft_wrap=True)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the backup.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="An empty folder, on which a server may start.")],
) -> None:
    """Make a data folder from a backup. When the server starts it gives up the rounds that were open."""
    from privateer_server.store.backup import restore as restored
    from privateer_server.store.schema import FILE, STORE_KIND

    restored(folder / FILE, data, STORE_KIND)
    identity = os.environ.get("PRIVATEER_IDENTITY")
    named = {"PRIVATEER_DATA": str(data)} | ({"PRIVATEER_IDENTITY": identity} if identity else {})
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in named.items())
    key = "" if identity else ", and PRIVATEER_IDENTITY to the old identity.key, which no backup has"
    screen.print(
        f"restored. Start it with: {settings} privateer server\n"
        f"If you have the old journal.db, set PRIVATEER_JOURNAL to it first{key}. "
        "Under privateer up, restore into data/server.",
        soft_wrap=True,
        markup=False,
    )


_DAY = 86_400
tokens = typer.Typer(help="Make admin tokens of a server.", no_args_is_help=True)


@tokens.callback()
def _group() -> None: ...


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose it is, or what it is for: the log of changes says so.")
    ],
    scope: Annotated[list[Scope], typer.Option(help="What it may do. May be repeated.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days after which it expires.")] = 90,
    as_json: Json = False,
) -> None:
    """Make an admin token. It is shown once: the server's file gets a digest of it."""
    expires = time.time() + days * _DAY
    try:
        secret, made = new_token(name, scope, expires)
    except ValueError as error:
        raise SpecError(str(error), field="NAME", remedy="name it such as alice or backup") from None
    if as_json:
        print_json({"token": secret, "line": made.line(), "expires": shown_time(expires)})
        return
    typer.echo(f"The token, which nobody can show again:\n  {secret}\n")
    typer.echo(f"Add this line to the file at the server's PRIVATEER_ADMIN_TOKENS:\n  {made.line()}")
