"""``algorithm.name = "auto"``: runs on simulated people choose the algorithm, and the file gets its name."""

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privateer_core.algorithms import TO_BE_CHOSEN, parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.drafting.toml_values import toml
from privateer_lab.environments import check_files, check_population, environment_for, with_people
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choice_of
from privateer_lab.planning.expectation.choices import peopled
from privateer_lab.planning.other_algorithms import by_features, every_algorithm
from privateer_lab.toml_file import read_tables

_FIELD: Final = "algorithm.name"
_NAMED: Final = re.compile(rf"""("{{3}}|'{{3}}|"|'){TO_BE_CHOSEN}\1""")


def is_to_be_chosen(tables: Mapping[str, Any]) -> bool:
    """Tell whether a spec leaves its algorithm open."""
    section = tables.get("algorithm")
    return isinstance(section, dict) and section.get("name") == TO_BE_CHOSEN


def candidates(tables: Mapping[str, Any], population: str | None) -> dict[str, ArmsSpec]:
    """Return the spec of each algorithm that tables can have, which leave it open; each has people.

    tables: those of a spec.
    population: other people, as `with_people` takes them.
    """
    for key in sorted(set(tables["algorithm"]) - {"name"}):
        detail, remedy = "belongs to an algorithm, which is still to be chosen", "remove it, or name the algorithm"
        raise SpecError(detail, field=f"algorithm.{key}", remedy=remedy)
    if tables.get("sources"):
        raise SpecError("is still to be chosen, and there are sources", field=_FIELD, remedy="name an algorithm")
    specs = every_algorithm(tables) if isinstance(tables.get("experiment"), dict) else {}
    if not specs or ("context" in tables and not any(spec.features for spec in specs.values())):
        parse_spec(dict(tables) | {"algorithm": {"name": by_features()[0]}})  # says what is wrong
    first = next(iter(specs.values()))
    check_population(first)
    if population is None and first.population is None and not first.reward.is_rate:
        detail = "missing, and people who are made up have rewards of 0 and 1"
        raise SpecError(detail, field="population", remedy="add it, or name an algorithm")
    known = peopled(first) if population is None else with_people(first, population)
    check_files(known)
    return {name: spec.model_copy(update={"population": known.population}) for name, spec in specs.items()}


def chosen_algorithm(specs: Mapping[str, ArmsSpec]) -> AlgorithmChoice:
    """Try algorithms on their people; return the one that earns most."""
    found = choice_of(specs, environment_for)
    if isinstance(found, SpecError):
        raise found
    return found


def write_name(path: Path, before: Mapping[str, Any], name: str) -> str:
    """Write an algorithm's name into a spec's file that leaves it open; all else in the file stays as it is.

    path: the file. It is replaced as a whole, or not at all.
    before: the tables that `read_tables` found there when the algorithm was chosen.
    name: the algorithm's.

    Returns
    -------
    str
        Why nothing is written; empty: it is.
    """
    try:
        if not path.is_file():
            return "it is no file"
        text = path.read_bytes().decode()
        if read_tables(path, [], "SPEC") != before:
            return "it has changed since"
        changed = _with_name(text, name)
        if changed:
            _replace(path.resolve(), changed)
    except OSError as error:
        return f"it cannot be replaced: {error.strerror}"
    except (ValueError, SpecError):
        return "it has changed since"
    return "" if changed else f"it does not say {TO_BE_CHOSEN!r} in plain letters"


def _with_name(text: str, name: str) -> str:
    """Return a file's text with the name; empty where nothing that stands for it can be replaced."""
    wanted = tomllib.loads(text)
    wanted["algorithm"]["name"] = name
    for found in _NAMED.finditer(text):
        changed = text[: found.start()] + toml(name) + text[found.end() :]
        try:
            if tomllib.loads(changed) == wanted:
                return changed
        except ValueError:  # it was part of another text
            continue
    return ""


def _replace(path: Path, text: str) -> None:
    """Replace a file in one step, so that a full disk leaves it as it was."""
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as opened:
            opened.write(text.encode())
        shutil.copymode(path, made)
        os.replace(made, path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
