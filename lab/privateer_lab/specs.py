"""Specs as the command line gets them: a TOML file, and ``--set section.key=value``."""

import tomllib
from pathlib import Path
from typing import Any

from privateer.errors import SpecError
from privateer.experiment import Spec, parse_spec
from privateer.families import AnySpec, parse_any_spec


def load_spec(path: Path, settings: list[str], users: int | None = None) -> Spec:
    """The partition experiment's spec in a file, with settings applied.

    Parameters
    ----------
    path
        TOML file.
    settings
        ``section.key=value`` each; the value as TOML, or a bare string. ``section.key=`` removes a key.
    users
        The horizon, if given.

    Raises
    ------
    SpecError
        If the file is missing or not TOML, a setting is not ``section.key=value``, or the spec is invalid.
    """
    data = _tables(path, settings)
    if users is not None:
        data.setdefault("experiment", {})["horizon"] = users
    return parse_spec(data)


def load_any_spec(path: Path, settings: list[str], users: int | None = None) -> AnySpec:
    """As `load_spec`, for a spec of any family; of a phased one ``users`` are the population.

    Actions may be in a CSV file, one a line, whose path is relative to the spec's.
    """
    data = _tables(path, settings)
    phased = data.get("algorithm", {}).get("name") == "phased"
    if users is not None:
        data.setdefault("experiment", {})["people" if phased else "horizon"] = users
    actions = data.get("actions", {})
    if "path" in actions:
        data["actions"] = {**actions, "vectors": _rows(path.parent / str(actions["path"]))}
        del data["actions"]["path"]
    return parse_any_spec(data)


def _tables(path: Path, settings: list[str]) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="SPEC", remedy="give the path of a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", field=str(path), remedy="see the examples") from None
    for setting in settings:
        _apply(data, setting)
    return data


def _rows(path: Path) -> list[list[float]]:
    """Vectors of a CSV file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="actions.path", remedy="give the path of a CSV file") from None
    except ValueError:
        raise SpecError(
            "not numbers", field="actions.path", remedy="write numbers and commas, one action a line"
        ) from None


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
    if not value.strip():
        table.pop(name, None)
        return
    try:
        table[name] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[name] = value.strip()
