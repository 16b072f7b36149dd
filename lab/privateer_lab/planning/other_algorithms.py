"""Algorithms of the registry by kind: contextual, featureless, for effects; and variants of an experiment."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError
from privateer_core.primitives.questions import FeatureMeans, KeyedMeans, L2VectorSum, Question, SmallDomainMeans
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec

_CONTEXTUAL_QUESTIONS: Final[tuple[type[Question], ...]] = (KeyedMeans, L2VectorSum, FeatureMeans)
"""Questions of contextual algorithms, the default one first."""
_ROUND_KEYS: Final = ("round_size", "min_round_fraction")


def contextual_algorithms() -> tuple[str, ...]:
    """Return the names of contextual algorithms, the first of each question."""
    return tuple(_find_first_algorithm(question, needs_context=True) for question in _CONTEXTUAL_QUESTIONS)


def candidate_names() -> tuple[str, ...]:
    """Return the names of all compared algorithms: `contextual_algorithms` and the featureless one."""
    return (*contextual_algorithms(), featureless_algorithm())


def featureless_algorithm() -> str:
    """Return the name of the algorithm that ignores features."""
    return _find_first_algorithm(SmallDomainMeans, needs_context=False)


def _find_first_algorithm(question: type[Question], *, needs_context: bool) -> str:
    kinds = {name: algorithm(name).spec for name in ALGORITHMS}
    asking = {name: kind for name, kind in kinds.items() if issubclass(kind, ArmsSpec) and kind.question is question}
    return next(name for name, kind in asking.items() if kind.capabilities.needs_context == needs_context)


def with_algorithm(tables: Mapping[str, Any], name: str) -> ArmsSpec | None:
    """Return the spec with another algorithm in its default settings; None if it is invalid."""
    changed = dict(tables) | {"algorithm": {"name": name}}
    if name == featureless_algorithm():
        changed.pop("context", None)
        experiment = changed["experiment"].items()
        changed["experiment"] = {key: setting for key, setting in experiment if key != "evaluation_fraction"}
    with suppress(SpecError):
        return cast(ArmsSpec, parse_spec(changed))
    return None


def build_variants(tables: Mapping[str, Any], *, own_rounds: bool = False) -> dict[str, ArmsSpec]:
    """Return the spec with each valid algorithm by name; with ``own_rounds`` growing rounds have its default size."""
    specs = with_own_rounds if own_rounds else with_algorithm
    variants = {name: specs(tables, name) for name in candidate_names()}
    return {name: spec for name, spec in variants.items() if spec is not None}


def with_own_rounds(tables: Mapping[str, Any], name: str) -> ArmsSpec | None:
    """Return the spec with another algorithm, with its default rounds if they grow.

    Rounds of constant size are those of the tables; as the first of growing rounds they would be too large.
    """
    experiment = {key: setting for key, setting in tables["experiment"].items() if key != "round_size"}
    variant = with_algorithm(dict(tables) | {"experiment": experiment}, name)
    return (
        variant if variant is not None and variant.experiment.min_round_fraction > 0 else with_algorithm(tables, name)
    )


def to_tables(spec: ArmsSpec) -> dict[str, Any]:
    """Return the tables of a spec, without round sizes that are its algorithm's defaults."""
    tables = spec.model_dump(exclude_none=True)
    usual_experiment = {key: setting for key, setting in tables["experiment"].items() if key not in _ROUND_KEYS}
    try:
        usual = cast(ArmsSpec, parse_spec(tables | {"experiment": usual_experiment})).experiment
    except SpecError:  # the usual rounds are larger than the experiment
        return tables
    stated = {key: tables["experiment"][key] for key in _ROUND_KEYS if getattr(usual, key) != tables["experiment"][key]}
    return tables | {"experiment": usual_experiment | stated}


def effect_algorithm() -> str:
    """Return the name of the first algorithm that plans for an effect size."""
    for name in ALGORITHMS:
        kind = algorithm(name).spec
        if issubclass(kind, ArmsSpec) and is_effect_spec(kind):
            return name
    raise AssertionError("no algorithm plans for an effect")


def is_effect_spec(kind: type[Spec]) -> bool:
    """Whether specs of a class state an effect size to detect."""
    return "minimum_detectable_effect" in getattr(kind.model_fields["algorithm"].annotation, "model_fields", {})
