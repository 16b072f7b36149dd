"""``algorithm.name = "auto"``: the algorithm is chosen by simulation, and its name is written into the file."""

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
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.environments import check_files, check_population, environment_for, with_population
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choose_algorithm
from privateer_lab.planning.expectation.choices import with_default_population
from privateer_lab.planning.other_algorithms import build_variants, contextual_algorithms
from privateer_lab.toml_file import read_tables

_FIELD: Final = "algorithm.name"
_NAME_PATTERN: Final = re.compile(rf"""("{{3}}|'{{3}}|"|'){TO_BE_CHOSEN}\1""")


def is_to_be_chosen(tables: Mapping[str, Any]) -> bool:
    """Return whether a spec leaves its algorithm open."""
    section = tables.get("algorithm")
    return isinstance(section, dict) and section.get("name") == TO_BE_CHOSEN


def candidate_specs(tables: Mapping[str, Any], population: str | None) -> dict[str, ArmsSpec]:
    """Return a spec with people for each algorithm that is possible for tables that leave it open."""
    for key in sorted(set(tables["algorithm"]) - {"name"}):
        detail, remedy = "belongs to an algorithm, which is still to be chosen", "remove it, or name the algorithm"
        raise SpecError(detail, field=f"algorithm.{key}", remedy=remedy)
    if tables.get("sources"):
        detail = f"cannot be {TO_BE_CHOSEN!r} in a spec with [[sources]]"
        raise SpecError(detail, field=_FIELD, remedy="name an algorithm")
    specs = build_variants(tables) if isinstance(tables.get("experiment"), dict) else {}
    if not specs or ("context" in tables and not any(spec.features for spec in specs.values())):
        parse_spec(dict(tables) | {"algorithm": {"name": contextual_algorithms()[0]}})  # says what is wrong
    first = next(iter(specs.values()))
    check_population(first)
    if population is None and first.population is None and not first.reward.is_rate:
        detail = "missing, and people who are made up have rewards of 0 and 1"
        raise SpecError(detail, field="population", remedy="add it, or name an algorithm")
    populated = with_default_population(first) if population is None else with_population(first, population)
    check_files(populated)
    return {name: spec.model_copy(update={"population": populated.population}) for name, spec in specs.items()}


def select_algorithm(specs: Mapping[str, ArmsSpec]) -> AlgorithmChoice:
    """Simulate each algorithm, and return the choice with the largest mean reward."""
    choice = choose_algorithm(specs, environment_for)
    if isinstance(choice, SpecError):
        raise choice
    return choice


def write_name(path: Path, original: Mapping[str, Any], name: str) -> str:
    """Write an algorithm's name atomically into a spec file that leaves it open; return why not, if it was changed."""
    try:
        if not path.is_file():
            return "it is no file"
        text = path.read_bytes().decode()
        if read_tables(path, [], "SPEC") != original:
            return "it has changed since"
        new_text = _insert_name(text, name)
        if new_text:
            _replace_file(path.resolve(), new_text)
    except OSError as error:
        return f"it cannot be replaced: {error.strerror}"
    except (ValueError, SpecError):
        return "it has changed since"
    return "" if new_text else f"it does not say {TO_BE_CHOSEN!r} in plain letters"


def _insert_name(text: str, name: str) -> str:
    """Return a file's text with the name inserted; empty if no place for the name is found."""
    expected = tomllib.loads(text)
    expected["algorithm"]["name"] = name
    for match in _NAME_PATTERN.finditer(text):
        candidate = text[: match.start()] + to_toml(name) + text[match.end() :]
        try:
            if tomllib.loads(candidate) == expected:
                return candidate
        except ValueError:  # it was part of another text
            continue
    return ""


def _replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, so that a full disk leaves it unchanged."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
