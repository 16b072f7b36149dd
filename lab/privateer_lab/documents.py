"""JSON and TOML files that others wrote: read strictly, so that no two readers take them for different documents."""

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from privateer.errors import SpecError

SIZE_MAX: Final = 64 << 20
"""Bytes of a file."""
DEPTH_MAX: Final = 100


def read_document(file: Path) -> Any:
    """What a JSON or TOML file holds.

    Raises
    ------
    SpecError
        If it cannot be read, is too large or nested too deep, or has a key twice or a number that JSON has not.
    """
    try:
        with file.open("rb") as opened:
            body = opened.read(SIZE_MAX + 1)
        if len(body) > SIZE_MAX:
            raise SpecError(f"{file} has more than {SIZE_MAX} bytes", field="FILE", remedy="split it")
        text = body.decode()
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {file}", field="FILE", remedy="give the path of a JSON or TOML file") from None
    try:
        value = tomllib.loads(text) if file.suffix == ".toml" else read_json(text)
    except (ValueError, RecursionError):
        raise SpecError(f"{file} is neither JSON nor TOML", field="FILE", remedy="see docs/accounting.md") from None
    _check_depth(value)
    return value


def read_json(text: str) -> Any:
    """What a JSON text holds, in which every key of an object is there once.

    Raises
    ------
    SpecError
        If a key is repeated, or a number is NaN or infinite.
    ValueError, RecursionError
        If it is not JSON.
    """
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise SpecError(f"has the key {name[:64]!r} twice", field="FILE", remedy="ask its writer for the right one")
        found[name] = value
    return found


def _no_number(_: str) -> Any:
    raise SpecError("has NaN or an infinite number", field="FILE", remedy="write finite numbers, or null")


def _finite(text: str) -> float:
    number = float(text)
    return number if number - number == 0 else float(_no_number(text))


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise SpecError(f"nested more than {DEPTH_MAX} deep", field="FILE", remedy="flatten it")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
