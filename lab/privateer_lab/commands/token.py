"""``token new``: an admin token of a server, with a name, scopes and an expiry."""

import time
from typing import Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.commands.options import Json
from privateer_lab.output import print_json
from privateer_server.admin_tokens import Scope, new_token, shown_time

_DAY = 86_400
tokens = typer.Typer(help="Make admin tokens of a server.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    tokens.command()(new)
    app.add_typer(tokens, name="token")


@tokens.callback()
def _group() -> None: ...


def new(
    name: Annotated[str, typer.Argument(help="Whose it is, or what it is for: the log of changes says so.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do. May be repeated.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days after which it expires.")] = 90,
    as_json: Json = False,
) -> None:
    """Make an admin token. It is shown once: the server's file gets a digest of it."""
    expires = time.time() + days * _DAY
    try:
        secret, made = new_token(name, scope, expires)
    except ValueError as error:
        raise SpecError(str(error), field="NAME", remedy="name it such as alice or nightly-backup") from None
    if as_json:
        print_json({"token": secret, "line": made.line(), "expires": shown_time(expires)})
        return
    typer.echo(f"The token, which nobody can show again:\n  {secret}\n")
    typer.echo(f"Add this line to the file at the server's PRIVATEER_ADMIN_TOKENS:\n  {made.line()}")
