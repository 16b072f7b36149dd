"""Which family of algorithms a spec is of."""

from typing import Any, TypeAlias

from privateer.experiment import Spec, parse_spec
from privateer.phased import PhasedSpec
from privateer.sections import parse_section

AnySpec: TypeAlias = Spec | PhasedSpec


def parse_any_spec(data: dict[str, Any]) -> AnySpec:
    """A spec of the family that ``algorithm.name`` names, from the tables of a TOML file.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    algorithm = data.get("algorithm")
    if isinstance(algorithm, dict) and algorithm.get("name") == "phased":
        return parse_section(PhasedSpec, data)
    return parse_spec(data)
