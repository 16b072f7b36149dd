"""Attacks that know how an algorithm works inside: one module of its name, where an algorithm has any.

A module of its name with ``_published`` attacks what a paper publishes and no spec can name.
"""

from importlib import import_module
from importlib.util import find_spec

from privateer_core.algorithms import ALGORITHMS
from privateer_lab.audit.case import Case


def attacks_of_algorithms(samples: int) -> list[Case]:
    """Return what the modules of the algorithms have."""
    modules = [f"{__name__}.{name}{kind}" for name in ALGORITHMS for kind in ("", "_published")]
    return [case for module in modules if find_spec(module) for case in import_module(module).cases(samples)]
