"""Environments: simulated people, as the ``[population]`` of a spec names them."""

from contextlib import suppress
from typing import Any, Final

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
    SmoothSection,
)
from privateer_lab.environments.linear import DisjointSection, LinearSection, NeedlesSection
from privateer_lab.environments.losses import LossesSection
from privateer_lab.environments.mixed import MixedSection, SlopesSection
from privateer_lab.environments.files.people_file import files_of

__all__ = [
    "Environment",
    "PlayedRewards",
    "check_files",
    "check_population",
    "default_environment",
    "environment_for",
    "population_of",
]

_KINDS: Final[dict[str, type[EnvironmentSection]]] = {
    "needles": NeedlesSection,
    "peaks": PeaksSection,
    "quadrants": QuadrantsSection,
    "smooth": SmoothSection,
    "bernoulli": BernoulliSection,
    "mixed": MixedSection,
    "slopes": SlopesSection,
    "effects": EffectsSection,
    "numbers": NumbersSection,
    "csv": CsvSection,
    "adult": AdultSection,
    "linear": LinearSection,
    "disjoint": DisjointSection,
    "losses": LossesSection,
}


def environment_for(spec: Spec, seed: int, section: dict[str, Any] | None = None) -> Environment:
    """Make the environment of a spec.

    Parameters
    ----------
    spec, section
        The spec names its ``population``, unless there is another ``section``, as for a source.
    seed
        Decides what the environment draws once: the order of people who are read from a file, or a parameter.

    Raises
    ------
    SpecError
        If there is no population, or it is wrong, does not fit the spec, or has a file that cannot be used.
    """
    table = spec.population if section is None else section
    if table is None:
        name = default_environment(spec)["name"]
        raise SpecError("missing", field="population", remedy=f"add [population] name = {name!r} to the spec")
    return _parsed(spec, table, "population").environment(spec, seed)


def population_of(spec: Spec) -> EnvironmentSection | None:
    """Return the section of a spec's population; None if it has none.

    Raises
    ------
    SpecError
        If it is wrong.
    """
    return None if spec.population is None else _parsed(spec, spec.population, "population")


def check_population(spec: Spec) -> None:
    """Check the populations of a spec and its sources, as far as that can be done without their files.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    tables = {"population": spec.population}
    tables |= {f"sources.{place}.population": source.population for place, source in enumerate(spec.sources)}
    for field, table in tables.items():
        if table is not None:
            _parsed(spec, table, field)


def check_files(spec: Spec) -> None:
    """Check that the files of a spec's populations are there, which takes next to no time.

    Raises
    ------
    SpecError
        If one is not.
    """
    for table in (spec.population, *(source.population for source in spec.sources)):
        if table and "path" in table:
            files_of(table["path"])


def default_environment(spec: Spec) -> dict[str, Any]:
    """Return the population of the first environment that fits a spec and needs no parameters.

    Raises
    ------
    SpecError
        If there is no such environment.
    """
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
        raise SpecError(f"must be one of {', '.join(map(repr, kinds))}", field=f"{field}.name", remedy="choose one")
    try:
        return parse_section(kinds[name], table)
    except SpecError as error:
        raise SpecError(error.detail, field=f"{field}.{error.field}", remedy=error.remedy) from None
