"""``algorithm.name = "auto"``: runs on simulated people choose the algorithm, and the file gets its name."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from privateer_core.algorithms import TO_BE_CHOSEN, parse_spec
from privateer_core.errors import SpecError
from privateer_lab.drafting.toml_values import toml
from privateer_lab.environments import check_files, check_population, environment_for, with_people
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choice_of
from privateer_lab.planning.expectation.choices import peopled
from privateer_lab.planning.other_algorithms import by_features, every_algorithm

_FIELD: Final = "algorithm.name"
_NAMED: Final = re.compile(rf"""(["']){TO_BE_CHOSEN}\1""")


def is_to_be_chosen(tables: dict[str, Any]) -> bool:
    """Tell whether a spec leaves its algorithm open."""
    section = tables.get("algorithm")
    return isinstance(section, dict) and section.get("name") == TO_BE_CHOSEN


def chosen_algorithm(tables: dict[str, Any], population: str | None) -> AlgorithmChoice:
    """Try the algorithms that a spec can have on its simulated people; return the one that earns most.

    Parameters
    ----------
    tables
        Those of a spec that leaves its algorithm open.
    population
        Other people, as `with_people` takes them.

    Raises
    ------
    SpecError
        If the spec is wrong whatever its algorithm, has settings of one, or has other sources of people.
    """
    for key in sorted(set(tables["algorithm"]) - {"name"}):
        detail, remedy = "belongs to an algorithm, which is still to be chosen", "remove it, or name the algorithm"
        raise SpecError(detail, field=f"algorithm.{key}", remedy=remedy)
    if tables.get("sources"):
        raise SpecError("is still to be chosen, and there are sources", field=_FIELD, remedy="name an algorithm")
    usual = tables | {"algorithm": {"name": by_features()[0]}}
    specs = every_algorithm(tables) if isinstance(tables.get("experiment"), dict) else {}
    if not specs or ("context" in tables and not any(spec.features for spec in specs.values())):
        parse_spec(usual)  # says what is wrong
    first = next(iter(specs.values()))
    check_population(first)
    known = peopled(first) if population is None else with_people(first, population)
    check_files(known)
    found = choice_of(specs, lambda spec, seed: environment_for(spec, seed, known.population))
    if found is None:
        raise SpecError("cannot be chosen: every algorithm refuses this spec", field=_FIELD, remedy="name one")
    return found


def write_name(path: Path, name: str) -> None:
    """Write the name of an algorithm into a spec's file that leaves it open; all else in the file stays as it is.

    Raises
    ------
    SpecError
        If the file cannot be written, or says nowhere in plain letters that its algorithm is to be chosen.
    """
    text = path.read_text(encoding="utf-8")
    wanted = tomllib.loads(text)
    wanted["algorithm"]["name"] = name
    for found in _NAMED.finditer(text):
        changed = text[: found.start()] + toml(name) + text[found.end() :]
        if tomllib.loads(changed) == wanted:
            try:
                path.write_text(changed, encoding="utf-8")
            except OSError:
                break
            return
    raise SpecError(f"cannot be written into {path}", field=_FIELD, remedy=f"write {toml(name)} there yourself")
