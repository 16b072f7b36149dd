"""Attacks on every part of a mechanism by itself: each draw that hides something has its own claim and its own law."""

from collections.abc import Callable
from typing import Final

from privateer_core.plugins import Plugins
from privateer_lab.audit.parts.bounded_vectors import vector_parts
from privateer_lab.audit.parts.devices import device_parts
from privateer_lab.audit.parts.hits import hit_parts
from privateer_lab.audit.parts.keyed import keyed_parts
from privateer_lab.audit.parts.moments import moment_parts
from privateer_lab.audit.parts.part import MechanismPart
from privateer_lab.audit.parts.running_sums import running_parts

PARTS: Final = Plugins[Callable[[], list[MechanismPart]]](
    "privateer.parts", "distribution that brings it", "--mechanism"
)
"""What returns the parts of other mechanisms than the core's, by a name of theirs."""
HIDES_NOTHING: Final = frozenset({"bernoulli", "Ball.on_grid", "BitVectors._integers"})
"""What mechanisms draw beside their parts: rounding, on which accuracy alone depends."""


def parts() -> list[MechanismPart]:
    """Return all parts."""
    own = [*keyed_parts(), *hit_parts(), *vector_parts(), *running_parts(), *moment_parts(), *device_parts()]
    return [*own, *(part for made in PARTS.values() for part in made())]


__all__ = ["HIDES_NOTHING", "MechanismPart", "parts"]
