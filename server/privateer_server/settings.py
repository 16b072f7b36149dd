"""What an operator decides: read once from the environment, with the flags of the command above it."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from privateer_core.errors import SpecError
from privateer_core.serving.http.cors import origins
from privateer_core.serving.http.listeners import host_names
from privateer_core.serving.settings import PORT_MAX, SIZE_MAX, STORE_KEY, check_database, number, paths, required
from privateer_core.serving.token_gate import TokenSettings
from privateer_server.admin_tokens import VARIABLE, token_digest

_MIB: Final = 1 << 20
_OPENERS_MAX: Final = 64
_LISTS: Final = {"origins": origins, "admin_names": host_names}
_TOKEN_LENGTH: Final = 16
_TOKEN: Final = f"at least {_TOKEN_LENGTH} characters, such as openssl rand -hex 16 prints"


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server; ``PRIVATEER_DATA`` sets ``data``, and so on.

    Attributes
    ----------
    data
        Directory of the keys of open rounds and the database; made if missing.
    admin_token
        Who sends it may do all that operators do. Only its SHA-256 is kept, as ``token_digest``; empty: there is none.
    admin_tokens
        File with the digests of further tokens, what each may do, and until when. One of the two must be there.
    shuffler_keys, sender_keys
        Files, or directories of ``*.pub`` files, with the public keys of trusted shufflers, and of trusted senders, who
        may send several people's reports at once.
    host, port, admin_host, admin_port
        Where the server listens to strangers, and to operators and shufflers.
    admin_names
        Names by which operators and shufflers call it, besides ``admin_host`` and those of this machine.
    report_bytes_max, batch_bytes_max, body_budget
        Bytes of the largest body that ``POST /reports`` and ``POST /batches`` take, and of all bodies in memory.
    journal
        File with the last publications; by default ``journal.db`` in the data directory.
    database, journal_database
        Where PostgreSQL is, if servers share their data: the database, and another one, which is never copied nor put
        back, for the journal and the keys of open rounds. Without them the data are in the data directory.
    store_key_file
        The file with the key that encrypts the keys of open rounds there (32 bytes).
    identity
        File with the key that signs publications, made if missing; by default ``identity.key`` in the data directory.
        Servers that share their data have the same key.
    openers
        Processes that open reports; 0: a thread of the server's own does. A server that is started as a process has as
        many as there are cores, unless a setting says otherwise.
    origins
        Origins whose pages may use the public listener from a browser; none by default.
    traces
        Where traces go (OTLP over HTTP); empty: nowhere.
    tokens
        Whether reports come with upload tokens alone, and whose.
    """

    data: Path
    admin_token: InitVar[str] = ""
    shuffler_keys: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    report_bytes_max: int = 4 * _MIB
    batch_bytes_max: int = 256 * _MIB
    sender_keys: tuple[Path, ...] = ()
    admin_host: str = "127.0.0.1"
    admin_port: int = 8002
    body_budget: int = 256 * _MIB
    journal: Path | None = None
    openers: int = 0
    database: str = field(default="", repr=False)
    journal_database: str = field(default="", repr=False)
    store_key_file: Path | None = None
    origins: tuple[str, ...] = ()
    identity: Path | None = None
    admin_tokens: Path | None = None
    admin_names: tuple[str, ...] = ()
    traces: str = ""
    tokens: TokenSettings = field(default_factory=TokenSettings)
    token_digest: bytes = field(init=False, repr=False)

    def __post_init__(self, admin_token: str) -> None:
        if not admin_token and self.admin_tokens is None:
            remedy = f"set it to {_TOKEN}, or set {VARIABLE}"
            raise SpecError("is not set", field="PRIVATEER_ADMIN_TOKEN", remedy=remedy)
        if admin_token and len(admin_token) < _TOKEN_LENGTH:
            raise SpecError("is too short to be safe", field="PRIVATEER_ADMIN_TOKEN", remedy=f"use {_TOKEN}")
        object.__setattr__(self, "token_digest", token_digest(admin_token) if admin_token else b"")


def read_settings(environment: Mapping[str, str], arguments: Sequence[str]) -> ServerSettings:
    """Read settings from ``PRIVATEER_*`` variables and command line flags; flags win.

    Raises
    ------
    SpecError
        Naming the variable that is missing or out of range.
    """
    parser = argparse.ArgumentParser(prog="privateer-server", description="Learns from private reports.")
    parser.add_argument("--host", help="address to listen on (PRIVATEER_HOST)")
    parser.add_argument("--port", help="port to listen on (PRIVATEER_PORT)")
    flags = {_variable(name): text for name, text in vars(parser.parse_args(arguments)).items() if text}
    given = {_variable("openers"): str(_cores()), **environment, **flags}
    _check_stores(given)
    given.setdefault("PRIVATEER_DATA", ".")  # nobody needs it where servers share their data
    names = ["admin_token", *(one.name for one in fields(ServerSettings) if one.init and one.name != "tokens")]
    values = {name: _read(given, name) for name in names if given.get(_variable(name))}
    tokens = TokenSettings.read(given, f"127.0.0.1:{values.get('port', ServerSettings.port)}")
    settings = ServerSettings(**values, tokens=tokens)
    largest = max(settings.report_bytes_max, settings.batch_bytes_max)
    if settings.body_budget < largest:
        raise SpecError(
            "is less than the largest body", field="PRIVATEER_BODY_BUDGET", remedy=f"give {largest} or more"
        )
    return settings


def _check_stores(given: Mapping[str, str]) -> None:
    """See that the settings of one kind of store are there, whole."""
    if not given.get("PRIVATEER_DATABASE"):
        required(given, "PRIVATEER_DATA", "a directory for the keys and the database")
        return
    for name in ("PRIVATEER_DATABASE", "PRIVATEER_JOURNAL_DATABASE"):
        required(given, name, "a database for the journal and the keys of open rounds, which no backup has")
        check_database(given, name)
    required(given, "PRIVATEER_STORE_KEY_FILE", STORE_KEY)
    required(given, "PRIVATEER_IDENTITY", "the file of the key that signs publications, the same on all servers")


def _cores() -> int:
    """Return the number of cores that this process may use, as far as a pool of processes can use them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, _OPENERS_MAX)


def _read(given: Mapping[str, str], name: str) -> Any:
    if name == "openers":
        return number(given, _variable(name), 0, _OPENERS_MAX, least=0)
    if name in _LISTS:
        return _LISTS[name](given)
    if name.endswith("_keys"):
        return paths(given, _variable(name))
    if name.endswith(("port", "_max", "_budget")):
        return number(given, _variable(name), 0, PORT_MAX if name.endswith("port") else SIZE_MAX)
    text = given[_variable(name)]
    return Path(text) if name in ("data", "journal", "identity", "store_key_file", "admin_tokens") else text


def _variable(name: str) -> str:
    return f"PRIVATEER_{name.upper()}"
