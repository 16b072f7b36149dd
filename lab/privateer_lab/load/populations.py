"""The populations that ``create`` keeps beside the device's ledger, and load runs play.

A server never gets the ``[population]`` of a spec. Without a copy here a load run would play other people than those
that ``plan`` and ``simulate`` are about.
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
from privateer_core.codec import canonical
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.environments import check_population
from privateer_lab.toml_file import read_tables

_FOLDER: Final = "populations"
_CHANGES: Final = ("experiment", "privacy", "algorithm", "sources", "population")
"""Tables of a spec that say nothing of the people, or that an operator may change."""


class KeptPeople(msgspec.Struct, frozen=True):
    """The part of a spec that ``create`` keeps."""

    about: str  # digest of what the spec says of the people: another experiment of the same name has another
    # the ``[population]``, by the name of the source; empty for the experiment's own people
    populations: dict[str, dict[str, Any]]


def keep_people(spec: Spec) -> None:
    """Keep the populations of a spec for load runs of this user; a spec without any erases what was kept."""
    named = {"": spec.population} | {source.name: source.population for source in spec.sources}
    populations = {name: _absolute(table) for name, table in named.items() if table is not None}
    path = _path(spec.name)
    if not populations:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_bytes(msgspec.json.encode(KeptPeople(_about(spec, spec.options), populations)))
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def kept_people(spec: Spec, cohort: str = "") -> dict[str, Any] | None:
    """Return the population that ``create`` kept of this experiment; None if it kept none, or that of another one.

    Parameters
    ----------
    spec
        As the server publishes it.
    cohort
        The source of the people; empty for the experiment's own. A source without people of its own has those.
    """
    path = _path(spec.name)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=KeptPeople)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        remedy = f"remove {path}, or name the people with --population"
        raise SpecError("the people that create kept cannot be read", field="--population", remedy=remedy) from None
    return kept.populations.get(cohort, kept.populations.get("")) if _is_about(kept.about, spec) else None


def people_of_file(spec: Spec, folder: Path, cohort: str = "") -> tuple[dict[str, Any], Path] | None:
    """Return the population of this experiment's spec in a folder, and its file; None if no file there has any."""
    for path in sorted(folder.glob("*.toml")):
        with suppress(PrivateerError):  # other files may be anything
            written = parse_spec(read_tables(path, [], "PRIVATEER_SPECS"))
            check_population(written)
            people = getattr(written.source(cohort), "population", None) or written.population
            if people and written.name == spec.name and _is_about(_about(written, written.options), spec):
                return people, path
    return None


def _is_about(digest: str, spec: Spec) -> bool:
    """Whether a digest is of this experiment; an operator may have added arms, the last ones."""
    options = spec.options
    return digest in {_about(spec, options[:count]) for count in range(1, len(options) + 1)}


def _about(spec: Spec, options: Sequence[str]) -> str:
    """Return the digest of the arms' names and of the tables that say what people are asked."""
    tables = spec.model_dump(mode="json", exclude=set(_CHANGES))
    return hashlib.sha256(canonical({"options": list(options), **tables})).hexdigest()


def _absolute(table: dict[str, Any]) -> dict[str, Any]:
    """Return a population whose file is found from any folder."""
    files = table.get("path")
    if not isinstance(files, str):
        return table
    return table | {"path": ",".join(os.path.abspath(one.strip()) for one in files.split(","))}


def _path(name: str) -> Path:
    return default_path().parent / _FOLDER / f"{name}.json"
