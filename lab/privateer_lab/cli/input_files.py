"""Files that commands read: specs with ``--set section.key=value``, and JSON and TOML that others wrote."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any, Final

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.environments import check_population
from privateer_lab.toml_file import read_tables

_SIZE_MAX: Final = 64 << 20
"""Bytes of a file."""


def load_spec(path: Path, settings: list[str], users: int | None = None, *, algorithm_name: str = "") -> Spec:
    """Read the spec in a file, with settings applied.

    path: TOML file. It may name a CSV file of actions, one a line, whose path is relative to its own.
    settings: ``section.key=value`` each; the value as TOML, or a bare string. ``section.key=`` removes a key.
    users: the number of people, if given.
    algorithm_name: another algorithm, with its defaults, for the same arms and people; features are left out if it has
        none.
    """
    data = read_tables(path, settings, "SPEC")
    if algorithm_name:
        _replace_algorithm(data, algorithm_name)
    return spec_of_tables(data, path.parent, users)


def spec_of_tables(data: dict[str, Any], folder: Path, users: int | None = None) -> Spec:
    """Return the spec of tables, which may name a CSV file of actions in a folder, for so many people."""
    if users is not None and isinstance(data.setdefault("experiment", {}), dict):
        data["experiment"][_people_key(data)] = users
    actions = data.get("actions")
    if isinstance(actions, dict) and "path" in actions:
        rest = {key: value for key, value in actions.items() if key != "path"}
        data["actions"] = {**rest, "vectors": _rows(folder / str(actions["path"]))}
    spec = parse_spec(data)
    check_population(spec)
    return spec


def _replace_algorithm(data: dict[str, Any], name: str) -> None:
    if name not in ALGORITHMS:
        raise SpecError(f"no algorithm {name!r}", field="--with", remedy=f"choose from {', '.join(ALGORITHMS)}")
    data["algorithm"] = {"name": name}
    if algorithm(name).spec.model_fields["context"].annotation is type(None):
        data.pop("context", None)


def _people_key(data: dict[str, Any]) -> str:
    """Return the key of ``experiment`` that holds the number of people, as far as the tables name an algorithm."""
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


def read_document(file: Path) -> Any:
    """Return what a JSON or TOML file holds."""
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
