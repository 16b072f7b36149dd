"""Environments: simulated people, as the ``[population]`` of a spec names them."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from privateer_core.errors import SpecError
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_lab.environments.classified import AdultSection, CsvSection
from privateer_lab.environments.effects import EffectsSection, NumbersSection
from privateer_lab.environments.environment import Environment, EnvironmentSection, PlayedRewards
from privateer_lab.environments.functions import (
    BernoulliSection,
    PeaksSection,
    QuadrantsSection,
    ShapesSection,
    SmoothSection,
)
from privateer_lab.environments.linear import DisjointSection, LinearSection, NeedlesSection
from privateer_lab.environments.losses import LossesSection
from privateer_lab.environments.mixed import MixedSection, SlopesSection
from privateer_lab.environments.own_people import OWN, OwnSection, own_population
from privateer_lab.environments.rows import RowsSection
from privateer_lab.tables.sources import files_of
from privateer_lab.toml_file import read_tables

__all__ = [
    "Environment",
    "PlayedRewards",
    "check_files",
    "check_population",
    "default_environment",
    "environment_for",
    "population_named",
    "population_of",
    "with_people",
]

S = TypeVar("S", bound=Spec)

_KINDS: Final[dict[str, type[EnvironmentSection]]] = {
    "needles": NeedlesSection,
    "peaks": PeaksSection,
    "quadrants": QuadrantsSection,
    "smooth": SmoothSection,
    "bernoulli": BernoulliSection,
    "mixed": MixedSection,
    "slopes": SlopesSection,
    "shapes": ShapesSection,
    "effects": EffectsSection,
    "numbers": NumbersSection,
    "csv": CsvSection,
    "rows": RowsSection,
    "adult": AdultSection,
    "linear": LinearSection,
    "disjoint": DisjointSection,
    "losses": LossesSection,
    OWN: OwnSection,
}


def environment_for(spec: Spec, seed: int, section: dict[str, Any] | None = None) -> Environment:
    """Make the environment of a spec.

    spec, section: the spec names its ``population``, unless there is another ``section``, as for a source.
    seed: decides what the environment draws once: the order of people who are read from a file, or a parameter.
    """
    table = spec.population if section is None else section
    if table is None:
        name = default_environment(spec)["name"]
        raise SpecError("missing", field="population", remedy=f"add [population] name = {name!r} to the spec")
    return _parsed(spec, table, "population").environment(spec, seed)


def population_of(spec: Spec) -> EnvironmentSection | None:
    """Return the section of a spec's population; None if it has none."""
    return None if spec.population is None else _parsed(spec, spec.population, "population")


def check_population(spec: Spec) -> None:
    """Check the populations of a spec and its sources, as far as that can be done without their files.

    People of one's own are refused: whoever runs a spec from elsewhere must not run code that it names.
    """
    tables = {"population": spec.population}
    tables |= {f"sources.{place}.population": source.population for place, source in enumerate(spec.sources)}
    for field, table in tables.items():
        if table is not None:
            if table.get("name") == OWN:
                detail, remedy = "no spec can name a class", "name it with --population module:Class"
                raise SpecError(detail, field=f"{field}.name", remedy=remedy)
            _parsed(spec, table, field)


def population_named(text: str) -> dict[str, Any]:
    """Return the population that somebody names: an environment, ``module:Class``, or a TOML file that has one."""
    if not text.endswith(".toml"):
        return own_population(text) if ":" in text else {"name": text}
    table = read_tables(Path(text), [], "--population").get("population")
    if not isinstance(table, dict):
        raise SpecError("the file has no population section", field="--population", remedy="add one")
    if table.get("name") == OWN:
        remedy = "name it with --population module:Class"
        raise SpecError("no file can name a class", field="--population", remedy=remedy)
    return table


def with_people(spec: S, people: Any) -> S:
    """Return a spec with other people.

    people: what `population_named` takes, a table of a ``[population]``, a class, or an object that has its methods.
    """
    if isinstance(people, str):
        table = population_named(people)
    else:
        table = dict(people) if isinstance(people, dict) else own_population(people)
    _parsed(spec, table, "population")
    return spec.model_copy(update={"population": table})


def check_files(spec: Spec) -> None:
    """Check that the files of a spec's populations are there, which takes next to no time."""
    for table in (spec.population, *(source.population for source in spec.sources)):
        if table and "path" in table:
            files_of(table["path"])


def default_environment(spec: Spec) -> dict[str, Any]:
    """Return the population of the first environment that fits a spec and needs no parameters."""
    for name, kind in _fitting(spec).items():
        if any(field.is_required() for key, field in kind.model_fields.items() if key != "name"):
            continue
        with suppress(SpecError):  # e.g. a formula of two numbers, and the spec has levels
            kind.model_validate({"name": name}).environment(spec, 0)
            return {"name": name}
    raise SpecError("missing, and none is usual for this algorithm", field="population", remedy="add it")


def _fitting(spec: Spec) -> dict[str, type[EnvironmentSection]]:
    return {name: kind for name, kind in _KINDS.items() if isinstance(spec, kind.needs)}


def _parsed(spec: Spec, table: dict[str, Any], field: str) -> EnvironmentSection:
    kinds, name = _fitting(spec), table.get("name")
    if name is None:
        raise SpecError("missing", field=f"{field}.name", remedy="add it")
    if not isinstance(name, str) or name not in kinds:
        listed = ", ".join(repr(one) for one in kinds if one != OWN)
        raise SpecError(f"must be one of {listed}", field=f"{field}.name", remedy="choose one")
    try:
        return parse_section(kinds[name], table)
    except SpecError as error:
        raise SpecError(error.detail, field=f"{field}.{error.field}", remedy=error.remedy) from None
