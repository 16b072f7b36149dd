"""``backup`` and ``restore``: copies of a server's database that cannot bring an open round back."""

import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from privateer_core.errors import SpecError, Unavailable
from privateer_lab.commands.options import ADMIN_URL, AdminUrl, Token
from privateer_lab.output import screen
from privateer_lab.rest import bearer, fetch

_BYTES_MAX: Final = 8 << 30
"""The largest backup that is read, in bytes: it is a whole database, from a server that has the operator's token."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(backup)
    app.command()(restore)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder without a backup.")],
    token: Token = None,
    admin_url: AdminUrl = ADMIN_URL,
) -> None:
    """Copy the database of a running server. A server on the copy gives up the rounds that are open now."""
    from privateer_server.store.backup import is_database, write_durably
    from privateer_server.store.sqlite import FILE

    path = folder / FILE
    if path.exists():
        raise SpecError(f"there is a {FILE} already", field="DIR", remedy="name another folder")
    body = fetch(f"{admin_url}/backup", field="--admin-url", headers=bearer(token), bytes_max=_BYTES_MAX)
    if not is_database(body):
        raise Unavailable("the answer is not a backup", field="--admin-url", remedy="correct the address")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(path, body)
    screen.print(f"{path}: {len(body):,} bytes", soft_wrap=True)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the backup.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="An empty folder, on which a server may start.")],
) -> None:
    """Make a data folder from a backup. When the server starts it gives up the rounds that were open."""
    from privateer_server.store.backup import restore as restored
    from privateer_server.store.sqlite import FILE
    from privateer_server.store.sqlite_schema import DATABASE

    restored(folder / FILE, data, DATABASE)
    screen.print(
        f"restored. Start it with: PRIVATEER_DATA={shlex.quote(str(data))} privateer server\n"
        "If you have the old journal.db, set PRIVATEER_JOURNAL to it first. "
        "Under privateer up, restore into data/server.",
        soft_wrap=True,
        markup=False,
    )
