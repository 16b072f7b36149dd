"""Specs as the command line gets them: a TOML file, and ``--set section.key=value``."""

import tomllib
from pathlib import Path
from typing import Any

from privateer.errors import SpecError
from privateer.experiment import Spec, parse_spec


def load_spec(path: Path, settings: list[str], users: int | None = None) -> Spec:
    """The spec in a file, with settings applied.

    Parameters
    ----------
    path
        TOML file.
    settings
        ``section.key=value`` each; the value as TOML, or a bare string.
    users
        The horizon, if given.

    Raises
    ------
    SpecError
        If the file is missing or not TOML, a setting is not ``section.key=value``, or the spec is invalid.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="SPEC", remedy="give the path of a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", field=str(path), remedy="see the examples") from None
    for setting in settings:
        _apply(data, setting)
    if users is not None:
        data.setdefault("experiment", {})["horizon"] = users
    return parse_spec(data)


def _apply(data: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not sections or not name:
        raise SpecError(f"cannot read {setting!r}", field="--set", remedy="write section.key=value")
    table = data
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise SpecError(f"{section!r} is not a section", field="--set", remedy="write section.key=value")
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[name] = value.strip()
