"""The algorithms of the registry by what they do: by features, without any, for effects; an experiment with others."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError
from privateer_core.primitives.questions import FeatureMeans, KeyedMeans, L2VectorSum, Question, SmallDomainMeans
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec

_BY_FEATURES: Final[tuple[type[Question], ...]] = (KeyedMeans, L2VectorSum, FeatureMeans)
"""What algorithms ask that choose by features, the usual one first."""
_OF_ROUNDS: Final = ("round_size", "round_growth")


def by_features() -> tuple[str, ...]:
    """Return the names of the algorithms that choose by features, the first of each question."""
    return tuple(_first(question, needs_context=True) for question in _BY_FEATURES)


def candidate_names() -> tuple[str, ...]:
    """Return the names of all algorithms that are compared: `by_features`, and the one without."""
    return (*by_features(), without_features())


def without_features() -> str:
    """Return the name of the algorithm that gives everybody the same option."""
    return _first(SmallDomainMeans, needs_context=False)


def _first(question: type[Question], *, needs_context: bool) -> str:
    kinds = {one: algorithm(one).spec for one in ALGORITHMS}
    return next(name for name, spec in kinds.items() if _asks(spec, question, needs_context))


def _asks(spec: type[Spec], question: type[Question], needs_context: bool) -> bool:
    if not issubclass(spec, ArmsSpec) or spec.question is not question:
        return False
    return spec.model_fields["context"].is_required() == needs_context


def with_algorithm(tables: Mapping[str, Any], name: str) -> ArmsSpec | None:
    """Return the spec of these tables with another algorithm, in its usual settings; None where it cannot be."""
    changed = dict(tables) | {"algorithm": {"name": name}}
    if name == without_features():
        changed.pop("context", None)
        changed["experiment"] = {key: one for key, one in changed["experiment"].items() if key != "gain_share"}
    with suppress(SpecError):
        return cast(ArmsSpec, parse_spec(changed))
    return None


def every_algorithm(tables: Mapping[str, Any], *, own_rounds: bool = False) -> dict[str, ArmsSpec]:
    """Return the spec of these tables with each algorithm that it can have: those by features, and the one without.

    With ``own_rounds`` rounds that grow begin as their algorithm has them, whatever the tables say.
    """
    specs = with_own_rounds if own_rounds else with_algorithm
    found = {name: specs(tables, name) for name in candidate_names()}
    return {name: spec for name, spec in found.items() if spec is not None}


def with_own_rounds(tables: Mapping[str, Any], name: str) -> ArmsSpec | None:
    """Return the spec of these tables with another algorithm, whose rounds are its own if they grow.

    Rounds of one size are those of the tables. Where rounds grow, such a first round would be most of the learning.
    """
    experiment = {key: one for key, one in tables["experiment"].items() if key != "round_size"}
    own = with_algorithm(dict(tables) | {"experiment": experiment}, name)
    return own if own is not None and own.experiment.round_growth > 0 else with_algorithm(tables, name)


def tables_of(spec: ArmsSpec) -> dict[str, Any]:
    """Return the tables of a spec, without sizes of rounds that are the usual ones of its algorithm."""
    tables = spec.model_dump(exclude_none=True)
    plain = {key: one for key, one in tables["experiment"].items() if key not in _OF_ROUNDS}
    try:
        usual = cast(ArmsSpec, parse_spec(tables | {"experiment": plain})).experiment
    except SpecError:  # the usual rounds are larger than the experiment
        return tables
    kept = {key: tables["experiment"][key] for key in _OF_ROUNDS if getattr(usual, key) != tables["experiment"][key]}
    return tables | {"experiment": plain | kept}


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
