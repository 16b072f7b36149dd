"""The algorithms, by name, from the plug-ins of all installed distributions.

An algorithm is two files of one name: spec and policy here or in another distribution, and the learner on the server.
"""

from typing import Any, Final

import msgspec

from privateer_core.errors import SpecError
from privateer_core.plugins import Plugins
from privateer_core.spec.sections import parse_section, parse_toml
from privateer_core.spec.spec import Spec


class Algorithm(msgspec.Struct, frozen=True):
    """The public half of an algorithm.

    Attributes
    ----------
    spec
        Its spec, with all checks.
    policy
        Its policy, a `privateer_core.policies.policy.Policy` that travels by `privateer_core.codec`.
    """

    spec: type[Spec]
    policy: type[Any]


ALGORITHMS: Final = Plugins[Algorithm]("privateer.algorithms", "distribution that brings it", "algorithm.name")
"""The installed algorithms, by name."""

TO_BE_CHOSEN: Final = "auto"
"""The placeholder in a spec file for an algorithm that is not chosen yet; no experiment has this name."""


def algorithm(name: str) -> Algorithm:
    """Return the public half of an algorithm of `ALGORITHMS`; raises the errors of `Plugins`."""
    return ALGORITHMS[name]


def parse_spec(data: dict[str, Any]) -> Spec:
    """Parse the tables of a TOML file into the spec of the algorithm that ``algorithm.name`` names.

    Raises
    ------
    SpecError
        With the first invalid field, its constraint and the remedy.
    PluginError
        If the algorithm is not installed, or cannot be used.
    """
    section = data.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    if name is None:
        raise SpecError("missing", field="algorithm.name", remedy="add it")
    if not isinstance(name, str):
        raise SpecError(f"must be one of {', '.join(ALGORITHMS)}", field="algorithm.name", remedy="choose one")
    if name == TO_BE_CHOSEN:
        remedy = "run `privateer plan SPEC`: it tries algorithms on simulated people and writes the best one's name"
        raise SpecError(f"{name!r} is still to be chosen", field="algorithm.name", remedy=remedy)
    return parse_section(algorithm(name).spec, data)


def read_spec(text: str) -> Spec:
    """Parse the text of a TOML file.

    Raises
    ------
    SpecError
        If the text is not TOML, or as `parse_spec`.
    """
    return parse_spec(parse_toml(text))
