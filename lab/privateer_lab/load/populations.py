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


def keep_people(spec: Spec) -> None:
    """Keep the spec with its populations for load runs of this user; one without any erases what was kept."""
    path = _path(spec.name)
    if spec == spec.without_people():
        path.unlink(missing_ok=True)
        return
    sources = tuple(one.model_copy(update={"population": _absolute(one.population)}) for one in spec.sources)
    kept = spec.model_copy(update={"population": _absolute(spec.population), "sources": sources})
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_text(kept.model_dump_json(exclude_none=True), encoding="utf-8")
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def kept_people(spec: Spec, cohort: str = "") -> dict[str, Any] | None:
    """Return the population that ``create`` kept of this experiment; None if it kept none, or that of another one.

    spec: as the server publishes it.
    cohort: the source of the people; empty for the experiment's own. A source without people of its own has those.
    """
    path = _path(spec.name)
    try:
        kept = parse_spec(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, SpecError):
        remedy = f"remove {path}, or name the people with --population"
        raise SpecError("the people that create kept cannot be read", field="--population", remedy=remedy) from None
    return _people_of(kept, spec, cohort)


def people_of_file(spec: Spec, folder: Path, cohort: str = "") -> tuple[dict[str, Any], Path] | None:
    """Return the population of this experiment's spec in a folder, and its file; None if no file there has any."""
    for path in sorted(folder.glob("*.toml")):
        with suppress(PrivateerError):  # other files may be anything
            written = parse_spec(read_tables(path, [], "PRIVATEER_SPECS"))
            check_population(written)
            if written.name == spec.name and (people := _people_of(written, spec, cohort)):
                return people, path
    return None


def _people_of(written: Spec, published: Spec, cohort: str) -> dict[str, Any] | None:
    """Return the population of a spec that somebody wrote, if the published one is of the same experiment."""
    options = published.options  # an operator may have added arms, the last ones
    about = {_about(published, options[:count]) for count in range(1, len(options) + 1)}
    if _about(written, written.options) not in about:
        return None
    return getattr(written.source(cohort), "population", None) or written.population


def _about(spec: Spec, options: Sequence[str]) -> str:
    """Return the digest of the arms' names and of the tables that say what people are asked."""
    tables = spec.model_dump(mode="json", exclude=set(_CHANGES))
    return hashlib.sha256(canonical({"options": list(options), **tables})).hexdigest()


def _absolute(table: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a population whose file is found from any folder."""
    files = table.get("path") if table else None
    if table is None or not isinstance(files, str):
        return table
    return table | {"path": ",".join(os.path.abspath(one.strip()) for one in files.split(","))}


def _path(name: str) -> Path:
    return default_path().parent / _FOLDER / f"{name}.json"
