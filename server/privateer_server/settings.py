"""What an operator decides: read once from the environment, with the flags of the command above it."""

import argparse
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from privateer.errors import SpecError

_PREFIX: Final = "PRIVATEER_"
_PORT_MAX: Final = 65535
_SIZE_MAX: Final = 1 << 40
_MIB: Final = 1 << 20
_TOKEN_LENGTH: Final = 16
_TOKEN: Final = f"at least {_TOKEN_LENGTH} characters, such as openssl rand -hex 16 prints"


@dataclass(frozen=True)
class Settings:
    """Settings of the server; ``PRIVATEER_DATA`` sets ``data``, and so on.

    Attributes
    ----------
    data
        Directory of the keys of open rounds and the database; made if missing.
    admin_token
        Who sends it may create experiments and fetch backups. Only its SHA-256 is kept, as ``token_digest``.
    shuffler_keys, sender_keys
        Files, or directories of ``*.pub`` files, with the public keys of trusted shufflers, and of trusted senders, who
        may send several people's reports at once.
    host, port, admin_host, admin_port
        Where the server listens to strangers, and to operators and shufflers.
    report_bytes_max, batch_bytes_max, body_budget
        Bytes of the largest body that ``POST /reports`` and ``POST /batches`` take, and of all bodies in memory.
    journal
        File with the last publications; by default ``journal.db`` in the data directory.
    """

    data: Path
    admin_token: InitVar[str]
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
    token_digest: bytes = field(init=False, repr=False)

    def __post_init__(self, admin_token: str) -> None:
        if len(admin_token) < _TOKEN_LENGTH:
            raise SpecError("is too short to be safe", field="PRIVATEER_ADMIN_TOKEN", remedy=f"use {_TOKEN}")
        object.__setattr__(self, "token_digest", token_digest(admin_token))


def token_digest(token: str) -> bytes:
    """Return what is kept of an admin token: nobody guesses a long random string from its SHA-256."""
    return hashlib.sha256(token.encode()).digest()


def read_settings(environment: Mapping[str, str], arguments: Sequence[str]) -> Settings:
    """Read settings from ``PRIVATEER_*`` variables and command line flags; flags win.

    Raises
    ------
    SpecError
        Naming the variable that is missing or out of range.
    """
    parser = argparse.ArgumentParser(prog="privateer-server", description="Learns from private reports.")
    parser.add_argument("--host", help="address to listen on (PRIVATEER_HOST)")
    parser.add_argument("--port", help="port to listen on (PRIVATEER_PORT)")
    given = {name.removeprefix(_PREFIX).lower(): text for name, text in environment.items() if name.startswith(_PREFIX)}
    given |= {name: text for name, text in vars(parser.parse_args(arguments)).items() if text}
    for name, meaning in (("data", "a directory for the keys and the database"), ("admin_token", _TOKEN)):
        if not given.get(name):
            raise SpecError("is not set", field=_variable(name), remedy=f"set it to {meaning}")
    names = ["admin_token", *(one.name for one in fields(Settings) if one.init)]
    settings = Settings(**{name: _read(name, given[name]) for name in names if given.get(name)})
    largest = max(settings.report_bytes_max, settings.batch_bytes_max)
    if settings.body_budget < largest:
        raise SpecError(
            "is less than the largest body", field="PRIVATEER_BODY_BUDGET", remedy=f"give {largest} or more"
        )
    return settings


def _read(name: str, text: str) -> Any:
    if name.endswith("_keys"):
        return tuple(Path(part) for part in text.split(os.pathsep) if part)
    if name.endswith(("port", "_max", "_budget")):
        return _number(name, text, _PORT_MAX if name.endswith("port") else _SIZE_MAX)
    return Path(text) if name in ("data", "journal") else text


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        remedy = f"give a number from 1 to {most}"
        raise SpecError("is not a whole number in range", field=_variable(name), remedy=remedy)
    return int(text)


def _variable(name: str) -> str:
    return _PREFIX + name.upper()
