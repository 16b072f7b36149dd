"""The tables of a TOML file, and ``--set section.key=value``."""

import tomllib
from pathlib import Path
from typing import Any

from privateer.errors import SpecError


def read_tables(path: Path, settings: list[str], field: str) -> dict[str, Any]:
    """The tables of a file, with settings applied.

    Parameters
    ----------
    path
        TOML file.
    settings
        ``section.key=value`` each; the value as TOML, or a bare string. ``section.key=`` removes a key.
    field
        What the command line calls the file.

    Raises
    ------
    SpecError
        If the file is missing or not TOML, or a setting is not ``section.key=value``.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field=field, remedy="give the path of a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", field=str(path), remedy="see the examples") from None
    for setting in settings:
        apply_setting(data, setting)
    return data


def apply_setting(data: dict[str, Any], setting: str) -> None:
    """Change tables as ``section.key=value`` says; ``section.key=`` removes a key.

    Raises
    ------
    SpecError
        If it is not of this form.
    """
    key, equals, value = setting.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not sections or not name:
        raise SpecError(f"cannot read {setting!r}", field="--set", remedy="write section.key=value")
    table = data
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise SpecError(f"{section!r} is not a section", field="--set", remedy="write section.key=value")
    if not value.strip():
        table.pop(name, None)
        return
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[name] = value.strip()
