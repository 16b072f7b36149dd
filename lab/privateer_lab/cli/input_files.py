"""Input files of commands: specs with ``--set section.key=value``, and untrusted JSON and TOML."""

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

_MAX_FILE_BYTES: Final = 64 << 20
"""Largest size of a document."""


def load_spec(path: Path, settings: list[str], users: int | None = None, *, algorithm_name: str = "") -> Spec:
    """Read a spec's TOML file, and the CSV file of actions that it may name, with settings and people applied.

    Another algorithm has its defaults, for the same arms and participants; features are left out if it has none.
    """
    tables = read_tables(path, settings, "SPEC")
    if algorithm_name:
        _replace_algorithm(tables, algorithm_name)
    return spec_from_tables(tables, path.parent, users)


def spec_from_tables(tables: dict[str, Any], folder: Path, users: int | None = None) -> Spec:
    """Parse the spec of tables, which may name a CSV file of actions in a folder, for ``users`` participants."""
    if users is not None and isinstance(tables.setdefault("experiment", {}), dict):
        tables["experiment"][_participants_key(tables)] = users
    actions = tables.get("actions")
    if isinstance(actions, dict) and "path" in actions:
        other_keys = {key: value for key, value in actions.items() if key != "path"}
        tables["actions"] = {**other_keys, "vectors": _read_vectors(folder / str(actions["path"]))}
    spec = parse_spec(tables)
    check_population(spec)
    return spec


def _replace_algorithm(tables: dict[str, Any], name: str) -> None:
    """Replace the algorithm in the tables, and drop a context that it has no use for; refuse unknown names."""
    if name not in ALGORITHMS:
        raise SpecError(f"no algorithm {name!r}", field="--with", remedy=f"choose from {', '.join(ALGORITHMS)}")
    tables["algorithm"] = {"name": name}
    if algorithm(name).spec.model_fields["context"].annotation is type(None):
        tables.pop("context", None)


def _participants_key(tables: dict[str, Any]) -> str:
    """Return the key of ``experiment`` for the number of participants, by the algorithm if the tables name it."""
    section = tables.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    return algorithm(name).spec.people_key if isinstance(name, str) and name in ALGORITHMS else Spec.people_key


def _read_vectors(path: Path) -> list[list[float]]:
    """Read the vectors of a CSV file; refuse other text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {path}", field="actions.path", remedy="give the path of a CSV file") from None
    except ValueError:
        remedy = "write numbers and commas, one action a line"
        raise SpecError("not numbers", field="actions.path", remedy=remedy) from None


def read_document(file: Path) -> Any:
    """Read a JSON or TOML file; refuse large files, repeated keys and non-finite numbers."""
    try:
        with file.open("rb") as stream:
            body = stream.read(_MAX_FILE_BYTES + 1)
        if len(body) > _MAX_FILE_BYTES:
            raise _file_error(f"{file} has more than {_MAX_FILE_BYTES} bytes", "split it")
        text = body.decode()
    except (OSError, UnicodeDecodeError):
        raise _file_error(f"cannot read {file}", "give the path of a JSON or TOML file") from None
    try:
        if file.suffix == ".toml":
            return tomllib.loads(text)
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_parse_finite, parse_float=_parse_finite)
    except (ValueError, RecursionError):
        raise _file_error(f"{file} is neither JSON nor TOML", "see docs/accounting.md") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object of JSON from its pairs; refuse a key that is there twice."""
    document: dict[str, Any] = {}
    for name, value in pairs:
        if name in document:
            raise _file_error(f"the key {name[:64]!r} is there twice", "ask its writer for the right one")
        document[name] = value
    return document


def _parse_finite(text: str) -> float:
    """Parse a number of JSON; refuse NaN and infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise _file_error("a number is NaN or infinite", "write finite numbers, or null")
    return number


def _file_error(detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field="FILE", remedy=remedy)
