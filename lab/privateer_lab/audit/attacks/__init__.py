"""Attacks that know how what they attack works inside: a learner's, or that of a paper which no spec can name."""

from collections.abc import Callable
from typing import Final

from privateer_core.plugins import Plugins
from privateer_lab.audit.case import Case

ATTACKS: Final = Plugins[Callable[[int], list[Case]]]("privateer.attacks", "distribution that brings it", "--mechanism")
"""What returns attacks with about so many observations of each neighbour, by the name of what is attacked."""


def attacks_of_algorithms(samples: int) -> list[Case]:
    """Return all of them."""
    return [case for attacks in ATTACKS.values() for case in attacks(samples)]
