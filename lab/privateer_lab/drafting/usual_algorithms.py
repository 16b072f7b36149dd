"""Algorithms for who has not chosen one, and wants effects."""

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec


def with_effects() -> str:
    """Return the name of the first algorithm that plans for an effect."""
    for name in ALGORITHMS:
        kind = algorithm(name).spec
        if issubclass(kind, ArmsSpec) and plans_for_effects(kind):
            return name
    raise AssertionError("no algorithm plans for an effect")


def plans_for_effects(kind: type[Spec]) -> bool:
    """Tell whether specs of this kind say which effect they are to find."""
    return "effect" in getattr(kind.model_fields["algorithm"].annotation, "model_fields", {})
