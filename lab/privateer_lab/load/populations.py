"""The populations that ``create`` stores beside the device's ledger for load runs.

A server never gets the ``[population]`` of a spec. Without the stored copy a load run would simulate other
participants than ``plan`` and ``simulate``.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_client.ledger.ledger import default_path
from privateer_core.algorithms import parse_spec
from privateer_core.codec import encode_canonical_json
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.environments import check_population
from privateer_lab.toml_file import read_tables

_FOLDER: Final = "populations"
_OPERATOR_TABLES: Final = ("experiment", "privacy", "algorithm", "sources", "population")
"""Tables of a spec that do not describe participants, or that an operator may change."""


def store_population(spec: Spec) -> None:
    """Store the spec with its populations for load runs of this user, or delete the stored one if it has none."""
    path = _path(spec.name)
    if spec == spec.without_people():
        path.unlink(missing_ok=True)
        return
    sources = tuple(
        source.model_copy(update={"population": _resolve_paths(source.population)}) for source in spec.sources
    )
    stored = spec.model_copy(update={"population": _resolve_paths(spec.population), "sources": sources})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_text(stored.model_dump_json(exclude_none=True), encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def load_stored_population(spec: Spec, cohort: str = "") -> dict[str, Any] | None:
    """Load the population that ``create`` stored for a spec and a source ("": the experiment's own); None without."""
    path = _path(spec.name)
    try:
        stored = parse_spec(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, SpecError):
        remedy = f"remove {path}, or name the people with --population"
        raise SpecError("the people that create kept cannot be read", field="--population", remedy=remedy) from None
    return _matching_population(stored, spec, cohort)


def find_population_in_folder(spec: Spec, folder: Path, cohort: str = "") -> tuple[dict[str, Any], Path] | None:
    """Return the population of this experiment's spec in a folder, and its file; None without a match."""
    for path in sorted(folder.glob("*.toml")):
        with suppress(PrivateerError):  # other files may be anything
            candidate = parse_spec(read_tables(path, [], "PRIVATEER_SPECS"))
            check_population(candidate)
            if candidate.name == spec.name and (population := _matching_population(candidate, spec, cohort)):
                return population, path
    return None


def _matching_population(stored: Spec, published: Spec, cohort: str) -> dict[str, Any] | None:
    """Return the population of a local spec, if the published spec is of the same experiment."""
    options = published.options[: len(stored.options)]  # an operator may have added arms, the last ones
    if _experiment_digest(stored, stored.options) != _experiment_digest(published, options):
        return None
    return getattr(stored.source(cohort), "population", None) or stored.population


def _experiment_digest(spec: Spec, options: Sequence[str]) -> str:
    """Return the digest of the arms' names and of the tables that define the reports."""
    tables = spec.model_dump(mode="json", exclude=set(_OPERATOR_TABLES))
    return hashlib.sha256(encode_canonical_json({"options": list(options), **tables})).hexdigest()


def _resolve_paths(table: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a population with absolute paths of files, or None."""
    files = table.get("path") if table else None
    if table is None or not isinstance(files, str):
        return table
    return table | {"path": ",".join(os.path.abspath(file.strip()) for file in files.split(","))}


def _path(name: str) -> Path:
    return default_path().parent / _FOLDER / f"{name}.json"
