"""The algorithms, found by name. Each is two files of one name: its spec and policy here, its learner on the server."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from privateer_core.errors import SpecError
from privateer_core.sections import parse_section, toml_tables
from privateer_core.spec import Spec

ALGORITHMS: Final = (
    "partition",
    "bandit",
    "convex",
    "linear",
    "phased",
    "sparse",
    "trial",
)


@dataclass(frozen=True)
class Algorithm:
    """The public half of an algorithm.

    Attributes
    ----------
    spec
        Its spec, with all refusals.
    policy
        Its policy, a `privateer_core.policy.Policy` that travels by `privateer_core.codec`.
    """

    spec: type[Spec]
    policy: type[Any]


@cache
def algorithm(name: str) -> Algorithm:
    """Return the public half of an algorithm of `ALGORITHMS`."""
    found = import_module(f"privateer_core.algorithms.{name}").ALGORITHM
    assert isinstance(found, Algorithm)
    return found


def parse_spec(data: dict[str, Any]) -> Spec:
    """Parse the tables of a TOML file into the spec of the algorithm that ``algorithm.name`` names.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    section = data.get("algorithm")
    name = section.get("name") if isinstance(section, dict) else None
    if not isinstance(name, str) or name not in ALGORITHMS:
        detail = "missing" if name is None else f"must be one of {', '.join(ALGORITHMS)}"
        raise SpecError(detail, field="algorithm.name", remedy="add it" if name is None else "choose one")
    return parse_section(algorithm(name).spec, data)


def read_spec(text: str) -> Spec:
    """Parse the text of a TOML file.

    Raises
    ------
    SpecError
        If the text is not TOML, or as `parse_spec`.
    """
    return parse_spec(toml_tables(text))
