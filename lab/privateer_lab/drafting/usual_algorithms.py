"""Algorithms for who has not chosen one: for choices by context, and for effects."""

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec


def by_context() -> str:
    """Return the name of the first algorithm of means by features."""
    kinds = {one: algorithm(one).spec for one in ALGORITHMS}
    return next(
        one
        for one, spec in kinds.items()
        if issubclass(spec, ArmsSpec) and spec.question is KeyedMeans and spec.model_fields["context"].is_required()
    )


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
