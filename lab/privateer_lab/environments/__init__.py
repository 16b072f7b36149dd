"""Environments: simulated participants, as named by the ``[population]`` of a spec."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from privateer_core.errors import SpecError
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_lab.environments.effects import EffectsSection, NumbersSection
from privateer_lab.environments.environment import Environment, EnvironmentSection, PlayedRewards
from privateer_lab.environments.files import AdultSection, CsvSection
from privateer_lab.environments.functions import BernoulliSection, PeaksSection, ShapesSection
from privateer_lab.environments.linear import DisjointSection, LinearSection, LossesSection, NeedlesSection
from privateer_lab.environments.mixed import MixedSection, SlopesSection
from privateer_lab.environments.own_people import OWN, OwnSection, own_population
from privateer_lab.environments.rows import RowsSection
from privateer_lab.tables.table_files import find_files
from privateer_lab.toml_file import read_tables

__all__ = [
    "Environment",
    "PlayedRewards",
    "check_files",
    "check_population",
    "default_environment",
    "environment_for",
    "parse_population",
    "read_population",
    "with_population",
]

S = TypeVar("S", bound=Spec)

_SECTION_TYPES: Final[dict[str, type[EnvironmentSection]]] = {
    "needles": NeedlesSection,
    "peaks": PeaksSection,
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
_REPLACEMENTS: Final = {
    "quadrants": "name it with --population privateer_papers.paper_1.setting:Quadrants",
    "smooth": "set population.name = 'mixed', whose functions are those of shape 'gentle'",
}
"""Remedies for names of before."""
_PAPER_KEYS: Final = {"cohort", "project", "projected"}
"""Keys of before, which only the first paper needs."""


def environment_for(spec: Spec, seed: int, section: dict[str, Any] | None = None) -> Environment:
    """Make the environment of the spec's or another population; the seed draws parameters; refuse a missing one."""
    table = spec.population if section is None else section
    if table is None:
        name = default_environment(spec)["name"]
        raise SpecError("missing", field="population", remedy=f"add [population] name = {name!r} to the spec")
    return _parse_section(spec, table, "population").environment(spec, seed)


def parse_population(spec: Spec) -> EnvironmentSection | None:
    """Return the section of a spec's population; None if it has none."""
    return None if spec.population is None else _parse_section(spec, spec.population, "population")


def check_population(spec: Spec) -> None:
    """Check the populations of a spec and its sources without files; refuse classes, whose code would run."""
    tables = {"population": spec.population}
    tables |= {f"sources.{index}.population": source.population for index, source in enumerate(spec.sources)}
    for field, table in tables.items():
        if table is not None:
            if table.get("name") == OWN:
                detail, remedy = "no spec can name a class", "name it with --population module:Class"
                raise SpecError(detail, field=f"{field}.name", remedy=remedy)
            _parse_section(spec, table, field)


def read_population(text: str) -> dict[str, Any]:
    """Read the population of an argument: an environment's name, ``module:Class``, or a TOML file."""
    if not text.endswith(".toml"):
        return own_population(text) if ":" in text else {"name": text}
    table = read_tables(Path(text), [], "--population").get("population")
    if not isinstance(table, dict):
        raise SpecError("the file has no population section", field="--population", remedy="add one")
    if table.get("name") == OWN:
        remedy = "name it with --population module:Class"
        raise SpecError("no file can name a class", field="--population", remedy=remedy)
    return table


def with_population(spec: S, population: Any) -> S:
    """Return a spec with another population, given as for `read_population`, or as a table, class or object."""
    if isinstance(population, str):
        table = read_population(population)
    else:
        table = dict(population) if isinstance(population, dict) else own_population(population)
    _parse_section(spec, table, "population")
    return spec.model_copy(update={"population": table})


def check_files(spec: Spec) -> None:
    """Check that the files of a spec's populations exist."""
    for table in (spec.population, *(source.population for source in spec.sources)):
        if table and "path" in table:
            find_files(table["path"])


def default_environment(spec: Spec) -> dict[str, Any]:
    """Return the first population that a spec can use without parameters; refuse a spec that none suits."""
    for name, kind in _find_compatible_sections(spec).items():
        if any(field.is_required() for key, field in kind.model_fields.items() if key != "name"):
            continue
        with suppress(SpecError):  # e.g. a formula of two numbers, and the spec has levels
            kind.model_validate({"name": name}).environment(spec, 0)
            return {"name": name}
    raise SpecError("missing, and none is usual for this algorithm", field="population", remedy="add it")


def _find_compatible_sections(spec: Spec) -> dict[str, type[EnvironmentSection]]:
    return {name: kind for name, kind in _SECTION_TYPES.items() if isinstance(spec, kind.needs)}


def _parse_section(spec: Spec, table: dict[str, Any], field: str) -> EnvironmentSection:
    """Parse a [population] section of an environment that fits the spec; refuse other names and keys."""
    kinds, name = _find_compatible_sections(spec), table.get("name")
    if name is None:
        raise SpecError("missing", field=f"{field}.name", remedy="add it")
    if isinstance(name, str) and name in _REPLACEMENTS:
        raise SpecError(f"there is no {name!r} any more", field=f"{field}.name", remedy=_REPLACEMENTS[name])
    if not isinstance(name, str) or name not in kinds:
        names = ", ".join(repr(section_name) for section_name in kinds if section_name != OWN)
        raise SpecError(f"must be one of {names}", field=f"{field}.name", remedy="choose one")
    for key in sorted(_PAPER_KEYS & table.keys()):
        remedy = "name columns of the file as features; components and cohorts are in privateer reproduce"
        raise SpecError("is no longer a key", field=f"{field}.{key}", remedy=remedy)
    try:
        return parse_section(kinds[name], table)
    except SpecError as error:
        raise SpecError(error.detail, field=f"{field}.{error.field}", remedy=error.remedy) from None
