"""``identity`` and ``audit-log``: who a server is, and whether its public log keeps to its word."""

import json
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.errors import SignatureInvalid, SpecError
from privateer.wire.identity import fingerprint, read_keys
from privateer.wire.keys import read_signing_key
from privateer.wire.log import Head
from privateer.wire.merkle import Peaks
from privateer_lab.commands.options import URL, Url
from privateer_lab.log_audit import Contradiction, Source, State, audit, compare
from privateer_lab.output import print_table, screen

_SECONDS = 30.0
_Address = Annotated[str, typer.Argument(metavar="URL", help="The server's address.")]
_Key = Annotated[str, typer.Option("--server-key", help="The server's public key; by default the first one met.")]
_State = Annotated[Path, typer.Option(help="File that remembers what was checked.")]
_Evidence = Annotated[Path, typer.Option(help="File for evidence, if there is any.")]
_Against = Annotated[
    list[str], typer.Option(help="A head that others were shown: a file, or an address. May be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(identity)
    app.command("audit-log")(audit_log)


def identity(
    url: Url = URL,
    data: Annotated[
        Path | None, typer.Option(help="The server's data folder, or its key file, on this machine.")
    ] = None,
) -> None:
    """Show the key that a server signs with: applications pin it. A key that is read from the disk is certain."""
    if data is not None:
        path = data / "identity.key" if data.is_dir() else data
        key = _public(read_signing_key(path, "--data"))
    else:
        with httpx.Client(timeout=_SECONDS) as http:
            key = Source(url, http).key()
    print_table("identity", [("key", key.hex()), ("fingerprint", fingerprint(key))])


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def audit_log(
    url: _Address,
    state: _State = Path("audit-log.json"),
    server_key: _Key = "",
    against: _Against = [],  # noqa: B006 - typer makes a list of its own
    evidence: _Evidence = Path("evidence.json"),
) -> None:
    """Check all that is new in a server's public log; exit with 1, and write evidence, if something does not hold.

    Run it now and then. It keeps the last head, and demands that the log goes on from it. With --against it also checks
    that others were shown the same log: devices export their heads (client.head).
    """
    keys, before = read_keys(server_key, "--server-key"), _read(state)
    if len(keys) > 1:
        raise SpecError("is more than one key", field="--server-key", remedy="name the one that signs now")
    with httpx.Client(timeout=_SECONDS) as http:
        source = Source(url, http)
        try:
            after, found = audit(source, next(iter(keys), None), before)
            for other in against:
                compare(source, after, _head(other, http))
        except Contradiction as contradiction:
            evidence.write_text(json.dumps(contradiction.evidence, indent=1) + "\n")
            screen.print(f"{contradiction}\nThe evidence is in {evidence}.", soft_wrap=True, markup=False)
            raise typer.Exit(1) from None
    state.write_bytes(msgspec.json.format(msgspec.json.encode(after)) + b"\n")
    print_table(
        "the log holds",
        [
            *(("entries", found.size), ("new", found.entries), ("publications read", found.read)),
            *(("not served any more", found.unserved), ("heads compared", len(against)), ("key", after.key)),
        ],
    )


def _read(path: Path) -> State | None:
    if not path.exists():
        return None
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
        Peaks(Head.open(state.head, bytes.fromhex(state.key)).size, state.peaks)
    except (OSError, ValueError, SignatureInvalid):
        remedy = "name another file: a new one trusts the log as it is"
        raise SpecError(f"{path.name} is not the state of an audit", field="--state", remedy=remedy) from None
    return state


def _head(other: str, http: httpx.Client) -> str:
    """Return the head in a file, or that of the server at an address."""
    if other.startswith(("http://", "https://")):
        return Source(other, http).get("/log/head").text
    try:
        return Path(other).read_text()
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {other}", field="--against", remedy="name a file, or an address") from None
