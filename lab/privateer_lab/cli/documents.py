"""JSON and TOML files that others wrote: read strictly, so that no two readers take them for different documents."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any, Final

from privateer_core.errors import SpecError

_SIZE_MAX: Final = 64 << 20
"""Bytes of a file."""


def read_document(file: Path) -> Any:
    """Return what a JSON or TOML file holds.

    Raises
    ------
    SpecError
        If the file cannot be read, is too large, has a key twice, or has a number that is not finite.
    """
    try:
        with file.open("rb") as opened:
            body = opened.read(_SIZE_MAX + 1)
        if len(body) > _SIZE_MAX:
            raise _refused(f"{file} has more than {_SIZE_MAX} bytes", "split it")
        text = body.decode()
    except (OSError, UnicodeDecodeError):
        raise _refused(f"cannot read {file}", "give the path of a JSON or TOML file") from None
    try:
        if file.suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=_once, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError):
        raise _refused(f"{file} is neither JSON nor TOML", "see docs/accounting.md") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _refused(f"the key {name[:64]!r} is there twice", "ask its writer for the right one")
        found[name] = value
    return found


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _refused("a number is NaN or infinite", "write finite numbers, or null")
    return number


def _refused(detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field="FILE", remedy=remedy)
