"""Tables of a TOML file, with changes by ``--set section.key=value``."""

import tomllib
from pathlib import Path
from typing import Any

from privateer_core.errors import SpecError


def read_tables(path: Path, settings: list[str], field: str) -> dict[str, Any]:
    """Read a TOML file and apply settings; ``population.path`` is relative to the file, but in a setting to here."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field=field, remedy="give the path of a TOML file") from None
    except RecursionError:
        raise SpecError("not TOML: nested too deeply", field=str(path), remedy="see the examples") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of too many digits
        raise SpecError(f"not TOML: {error}", field=str(path), remedy="see the examples") from None
    for owner in (tables, *_filter_tables(tables.get("sources"))):
        for population in _filter_tables([owner.get("population")]):
            if isinstance(files := population.get("path"), str):
                population["path"] = ",".join(str(path.parent / file.strip()) for file in files.split(","))
    for setting in settings:
        apply_setting(tables, setting)
    return tables


def _filter_tables(entries: Any) -> list[dict[str, Any]]:
    """Return the tables of a list; the spec refuses other entries."""
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def apply_setting(tables: dict[str, Any], setting: str) -> None:
    """Apply a setting ``section.key=value`` to tables; values are TOML or bare strings, and empty ones remove the key.

    A table of a list is selected by its name, as in ``sources.clinic.epsilon=2``.
    """
    key, equals, value = setting.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not sections or not name:
        raise SpecError(f"cannot read {setting!r}", field="--set", remedy="write section.key=value")
    table: Any = tables
    for index, section in enumerate(sections):
        if isinstance(table, list):
            subtable = next((entry for entry in _filter_tables(table) if entry.get("name") == section), None)
            if subtable is None:
                detail = f"{'.'.join(sections[:index])} has no table with the name {section!r}"
                raise SpecError(detail, field="--set", remedy="use a name that the spec has")
        else:
            subtable = table.setdefault(section, [] if section == "sources" else {})
        if not isinstance(subtable, dict) and not (isinstance(subtable, list) and index + 1 < len(sections)):
            raise SpecError(f"{section!r} is not a section", field="--set", remedy="write section.key=value")
        table = subtable
    if not value.strip():
        table.pop(name, None)
        return
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # TOMLDecodeError, and what tomllib lets through
        if value.strip()[0] in "[{":
            remedy = "write numbers as 0.5, texts in quotes"
            raise SpecError("is not a list or table of TOML", field=f"--set {key.strip()}", remedy=remedy) from None
        table[name] = value.strip()
