"""The algorithms, found by name. Each is two files of one name: its spec and policy here, its learner on the server."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from privateer.spec import Spec

ALGORITHMS: Final = (
    "partition",
    "phased",
)


@dataclass(frozen=True)
class Algorithm:
    """The public half of an algorithm.

    Attributes
    ----------
    spec
        Its spec, with all refusals.
    policy
        Its policy, a `privateer.policy.Policy` that travels by `privateer.codec`.
    """

    spec: "type[Spec]"
    policy: type[Any]


@cache
def algorithm(name: str) -> Algorithm:
    """Return the public half of an algorithm of `ALGORITHMS`."""
    found = import_module(f"privateer.algorithms.{name}").ALGORITHM
    assert isinstance(found, Algorithm)
    return found
