"""Settings of a service, read from environment variables."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError

PORT_MAX: Final = 65535
SIZE_MAX: Final = 1 << 40
STORE_KEY: Final = "a file of 32 bytes, such as openssl rand -out FILE 32 writes"
_SCHEMES: Final = ("postgresql://", "postgres://")


def required(variables: Mapping[str, str], name: str, meaning: str) -> str:
    """Return a variable that has no default.

    Raises
    ------
    SpecError
        Naming it and its ``meaning``, if it is missing or empty.
    """
    if not variables.get(name):
        raise SpecError("is not set", field=name, remedy=f"set it to {meaning}")
    return variables[name]


def number(variables: Mapping[str, str], name: str, default: int, most: int = SIZE_MAX, least: int = 1) -> int:
    """Return a variable as a whole number, or ``default`` if it is missing or empty.

    Raises
    ------
    SpecError
        Naming it, if it is not a whole number from ``least`` to ``most``.
    """
    text = variables.get(name) or str(default)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not (is_number and least <= int(text) <= most):
        raise SpecError("is not a whole number in range", field=name, remedy=f"give a number from {least} to {most}")
    return int(text)


def check_database(variables: Mapping[str, str], name: str) -> None:
    """Refuse a variable that is no address of a PostgreSQL database.

    Raises
    ------
    SpecError
        Naming it.
    """
    if not variables[name].startswith(_SCHEMES):
        raise SpecError("is no address of a PostgreSQL database", field=name, remedy="give postgresql://HOST/NAME")


def logs_json(variables: Mapping[str, str]) -> bool:
    """Whether ``PRIVATEER_LOG`` asks for JSON."""
    return variables.get("PRIVATEER_LOG") == "json"


def check_log(variables: Mapping[str, str]) -> None:
    """Refuse any other ``PRIVATEER_LOG``.

    Raises
    ------
    SpecError
        If it is neither ``text``, which it is by default, nor ``json``.
    """
    if variables.get("PRIVATEER_LOG", "") not in ("", "text", "json"):
        raise SpecError("is no form of logs", field="PRIVATEER_LOG", remedy="set it to text or json")


def paths(variables: Mapping[str, str], name: str) -> tuple[Path, ...]:
    """Return the paths in a variable, which are separated as in ``PATH``."""
    return tuple(Path(part) for part in variables.get(name, "").split(os.pathsep) if part)
