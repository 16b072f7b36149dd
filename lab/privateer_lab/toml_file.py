"""Tables of a TOML file, and changes of them as ``--set section.key=value`` says."""

import tomllib
from pathlib import Path
from typing import Any

from privateer_core.errors import SpecError


def read_tables(path: Path, settings: list[str], field: str) -> dict[str, Any]:
    """Read the tables of a file, and apply settings.

    path: TOML file. A relative ``population.path`` in it is relative to it; in a setting, to the working directory.
    settings: as `apply_setting` takes them.
    field: what the command line calls the file.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field=field, remedy="give the path of a TOML file") from None
    except RecursionError:
        raise SpecError("not TOML: nested too deeply", field=str(path), remedy="see the examples") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of too many digits
        raise SpecError(f"not TOML: {error}", field=str(path), remedy="see the examples") from None
    for owner in (data, *_tables_of(data.get("sources"))):
        for population in _tables_of([owner.get("population")]):
            population.update(_beside(path, population))
    for setting in settings:
        apply_setting(data, setting)
    return data


def _tables_of(found: Any) -> list[dict[str, Any]]:
    """Return the tables of a list; the spec refuses everything else in it."""
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _beside(path: Path, population: dict[str, Any]) -> dict[str, Any]:
    """Return a population's files, relative to the directory of the file that names them."""
    files = population.get("path")
    return (
        {"path": ",".join(str(path.parent / one.strip()) for one in files.split(","))} if isinstance(files, str) else {}
    )


def apply_setting(data: dict[str, Any], setting: str) -> None:
    """Change tables as ``section.key=value`` says; the value is TOML, or a bare string; without one the key is removed.

    One table of several is meant by its name, as in ``sources.clinic.epsilon=2``.
    """
    key, equals, value = setting.partition("=")
    *sections, name = key.strip().split(".")
    if not equals or not sections or not name:
        raise SpecError(f"cannot read {setting!r}", field="--set", remedy="write section.key=value")
    table: Any = data
    for place, section in enumerate(sections):
        if isinstance(table, list):
            found = next((one for one in _tables_of(table) if one.get("name") == section), None)
            if found is None:
                detail = f"{'.'.join(sections[:place])} has no table with the name {section!r}"
                raise SpecError(detail, field="--set", remedy="use a name that the spec has")
        else:
            found = table.setdefault(section, [] if section == "sources" else {})
        if not isinstance(found, dict) and not (isinstance(found, list) and place + 1 < len(sections)):
            raise SpecError(f"{section!r} is not a section", field="--set", remedy="write section.key=value")
        table = found
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
