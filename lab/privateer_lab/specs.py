"""Specs as the command line gets them: a TOML file, and ``--set section.key=value``."""

from pathlib import Path
from typing import Any

from privateer.errors import SpecError
from privateer.experiment import Spec, parse_spec
from privateer.families import AnySpec, parse_any_spec
from privateer.tables import read_tables


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
        If the file is missing or not TOML, a setting is not ``section.key=value``, or the spec is invalid or of
        another algorithm.
    """
    data = read_tables(path, settings, "SPEC")
    if _algorithm(data) == "phased":
        raise SpecError("this is for the partition algorithm", field="algorithm.name", remedy="use privateer simulate")
    _set_people(data, "horizon", users)
    return parse_spec(data)


def load_any_spec(path: Path, settings: list[str], users: int | None = None) -> AnySpec:
    """As `load_spec`, for a spec of any family; of a phased one ``users`` are the population.

    Actions may be in a CSV file, one a line, whose path is relative to the spec's.
    """
    data = read_tables(path, settings, "SPEC")
    _set_people(data, "people" if _algorithm(data) == "phased" else "horizon", users)
    actions = data.get("actions")
    if isinstance(actions, dict) and "path" in actions:
        data["actions"] = {**actions, "vectors": _rows(path.parent / str(actions["path"]))}
        del data["actions"]["path"]
    return parse_any_spec(data)


def _algorithm(data: dict[str, Any]) -> Any:
    """Its name, as far as the tables have one."""
    section = data.get("algorithm")
    return section.get("name") if isinstance(section, dict) else None


def _set_people(data: dict[str, Any], key: str, users: int | None) -> None:
    if users is not None and isinstance(data.setdefault("experiment", {}), dict):
        data["experiment"][key] = users


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
