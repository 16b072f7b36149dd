"""Which family of algorithms a spec is of."""

from typing import Any, Final, TypeAlias

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer.phased import PhasedSpec
from privateer.sections import parse_section

AnySpec: TypeAlias = Spec | PhasedSpec
_FAMILIES: Final[dict[str, type[AnySpec]]] = {"partition": Spec, "phased": PhasedSpec}


def parse_any_spec(data: dict[str, Any]) -> AnySpec:
    """A spec of the family that ``algorithm.name`` names, from the tables of a TOML file.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    algorithm = data.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    if isinstance(name, str) and name not in _FAMILIES:
        raise SpecError(f"must be one of {', '.join(_FAMILIES)}", field="algorithm.name", remedy="choose one")
    return parse_section(_FAMILIES[name] if isinstance(name, str) else Spec, data)
