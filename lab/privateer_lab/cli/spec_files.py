"""Specs as the command line gets them: a TOML file, and ``--set section.key=value``."""

from pathlib import Path
from typing import Any

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_core.spec.toml_file import read_tables
from privateer_lab.environments import check_population


def load_spec(path: Path, settings: list[str], users: int | None = None) -> Spec:
    """Read the spec in a file, with settings applied.

    Parameters
    ----------
    path
        TOML file. It may name a CSV file of actions, one a line, whose path is relative to its own.
    settings
        ``section.key=value`` each; the value as TOML, or a bare string. ``section.key=`` removes a key.
    users
        The number of people, if given.

    Raises
    ------
    SpecError
        If the file is missing or not TOML, a setting is not ``section.key=value``, or the spec is invalid.
    """
    data = read_tables(path, settings, "SPEC")
    if users is not None and isinstance(data.setdefault("experiment", {}), dict):
        data["experiment"][_people_key(data)] = users
    actions = data.get("actions")
    if isinstance(actions, dict) and "path" in actions:
        rest = {key: value for key, value in actions.items() if key != "path"}
        data["actions"] = {**rest, "vectors": _rows(path.parent / str(actions["path"]))}
    spec = parse_spec(data)
    check_population(spec)
    return spec


def _people_key(data: dict[str, Any]) -> str:
    """The key of ``experiment`` that holds the number of people, as far as the tables name an algorithm."""
    section = data.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    return algorithm(name).spec.people_key if isinstance(name, str) and name in ALGORITHMS else Spec.people_key


def _rows(path: Path) -> list[list[float]]:
    """Read the vectors of a CSV file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="actions.path", remedy="give the path of a CSV file") from None
    except ValueError:
        raise SpecError(
            "not numbers", field="actions.path", remedy="write numbers and commas, one action a line"
        ) from None
