"""What an operator decides: read once from the environment, with the flags of the command above it."""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Final

from privateer.errors import SpecError
from privateer.serving.settings import PORT_MAX, number, paths, required

_MIB: Final = 1 << 20
_TOKEN_LENGTH: Final = 16
_TOKEN: Final = f"at least {_TOKEN_LENGTH} characters, such as openssl rand -hex 16 prints"


@dataclass(frozen=True)
class Settings:
    """Settings of the server.

    Attributes
    ----------
    data
        Directory of the keys of open rounds and the database; made if missing.
    admin_token
        Who sends it may create experiments and fetch backups. It is not kept.
    token_digest
        Its SHA-256.
    journal
        File with the last publications; by default ``journal.db`` in the data directory.
    shuffler_keys
        Files, or directories of ``*.pub`` files, with the public keys of trusted shufflers.
    sender_keys
        The same of trusted senders, who may send several people's reports at once.
    host, port
        Where strangers are listened to.
    admin_host, admin_port
        Where operators and shufflers are listened to.
    report_bytes_max, batch_bytes_max
        Largest body that ``POST /reports`` and ``POST /batches`` take.
    body_budget
        Bytes that all bodies together may take in memory.
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
    """What is kept of an admin token: nobody guesses a long random string from its SHA-256."""
    return hashlib.sha256(token.encode()).digest()


def read_settings(environment: Mapping[str, str], arguments: Sequence[str]) -> Settings:
    """Settings from ``PRIVATEER_*`` variables and command line flags; flags win.

    Raises
    ------
    SpecError
        Naming the variable that is missing or out of range.
    """
    flags = _parser().parse_args(arguments)
    variables = {name: value for name, value in environment.items() if value}
    if flags.port is not None:
        variables["PRIVATEER_PORT"] = flags.port
    journal = variables.get("PRIVATEER_JOURNAL")
    settings = Settings(
        data=Path(required(variables, "PRIVATEER_DATA", "a directory for the keys and the database")),
        admin_token=required(variables, "PRIVATEER_ADMIN_TOKEN", _TOKEN),
        shuffler_keys=paths(variables, "PRIVATEER_SHUFFLER_KEYS"),
        sender_keys=paths(variables, "PRIVATEER_SENDER_KEYS"),
        host=flags.host or variables.get("PRIVATEER_HOST", Settings.host),
        port=number(variables, "PRIVATEER_PORT", Settings.port, PORT_MAX),
        report_bytes_max=number(variables, "PRIVATEER_REPORT_BYTES_MAX", Settings.report_bytes_max),
        batch_bytes_max=number(variables, "PRIVATEER_BATCH_BYTES_MAX", Settings.batch_bytes_max),
        journal=Path(journal) if journal else None,
        admin_host=variables.get("PRIVATEER_ADMIN_HOST", Settings.admin_host),
        admin_port=number(variables, "PRIVATEER_ADMIN_PORT", Settings.admin_port, PORT_MAX),
        body_budget=number(variables, "PRIVATEER_BODY_BUDGET", Settings.body_budget),
    )
    largest = max(settings.report_bytes_max, settings.batch_bytes_max)
    if settings.body_budget < largest:
        raise SpecError(
            "is less than the largest body", field="PRIVATEER_BODY_BUDGET", remedy=f"give {largest} or more"
        )
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="privateer-server", description="Learns from private reports.")
    parser.add_argument("--host", help="address to listen on (PRIVATEER_HOST)")
    parser.add_argument("--port", help="port to listen on (PRIVATEER_PORT)")
    return parser
