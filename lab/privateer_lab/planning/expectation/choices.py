"""Variants of a spec to compare in a plan, and plain A/B tests as a reference."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from privateer_core.algorithms import parse_spec
from privateer_core.answer.facts import Table
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST, Curator
from privateer_core.spec.arms import ARMS_MAX_COMPARED, ARMS_MIN, ArmsSpec
from privateer_core.spec.spec import Spec, example_promises
from privateer_lab.environments import default_environment, environment_for
from privateer_lab.planning.expectation.partial_runs import PartialRun, restrict_to, run_partially
from privateer_lab.planning.feature_sets.afforded import find_affordable_sets, with_features
from privateer_lab.planning.feature_sets.outcomes import estimate_outcomes
from privateer_lab.planning.other_algorithms import (
    candidate_names,
    contextual_algorithms,
    effect_algorithm,
    is_effect_spec,
    to_tables,
    with_algorithm,
)
from privateer_lab.planning.plans import (
    EPSILON_MAX,
    MODELS,
    Refusal,
    Variant,
    make_variants,
    name_promise_in_error,
    plan_effects,
    try_promises,
)

SEGMENT_COLUMN: Final = "segment"
LEAST_EFFECT_COLUMN: Final = "least effect"
CORRECTED_EFFECT_COLUMN: Final = "least effect decided, at worst"
"""The columns of segments, of the smallest detectable effect, and of that after the correction."""
DEFAULT_PARTICIPANTS: Final = 20_000
_MIN_ARM_PARTICIPANTS: Final = 20
"""Fewest participants of each arm at the first look of a plain test."""
LOOKS: Final = 50
"""Most looks of a plain test, so that plans of all sizes have as many looks."""
_DELTA: Final = 1e-6


def make_plain_test(
    *,
    arms: int = 2,
    rate: float = 0.5,
    power: float = 0.8,
    level: float = 0.05,
    looks: int = 8,
    delta: float = _DELTA,
    n_participants: int = DEFAULT_PARTICIPANTS,
    **unknown: Any,
) -> Spec:
    """Make the spec of a plain test, by the first algorithm that plans for an effect size."""
    if unknown:
        remedy = "give a spec, or arms, rate, power, level, looks, delta"
        raise SpecError("is no part of a plain test", field=next(iter(unknown)), remedy=remedy)
    rows = ((example, TRUST[name]) for name, example in example_promises().items())
    promise = next(example for example, row in rows if row.delta_least and row.curator is Curator.SERVER)
    if not (isinstance(arms, int) and ARMS_MIN <= arms <= ARMS_MAX_COMPARED):
        remedy = "say how many arms there are"
        raise SpecError(f"must be {ARMS_MIN} to {ARMS_MAX_COMPARED}", field="arms", remedy=remedy)
    tables = {
        "experiment": {
            "name": "plain",
            "arms": [f"arm {k}" for k in range(arms)],
            "horizon": n_participants,
            "round_size": min(n_participants, max(_MIN_ARM_PARTICIPANTS * arms, n_participants // LOOKS)),
        },
        "reward": {"base_rate": rate},
        "privacy": promise | {"delta": delta},
        "algorithm": {"name": effect_algorithm(), "allocation": "fixed"}
        | {"power": power, "significance_level": level, "looks": looks},
    }
    return parse_spec(tables)


def find_least_effect(n_participants: int, arms: int, rate: float, variant: Variant) -> float | None:
    """Return the effect that a plain test of a binary reward detects under a variant's promise; None if none."""
    try:
        delta = variant.spec.privacy.delta or _DELTA
        test = make_plain_test(n_participants=n_participants, arms=arms, rate=rate, delta=delta)
        (plan,) = plan_effects(make_variants(test, [variant.model], [variant.epsilon]))
        return next(iter(find_least_effects(plan["tables"]).values()))
    except SpecError:
        return None


def find_least_effects(tables: Sequence[Table], column: str = LEAST_EFFECT_COLUMN) -> dict[str, float | None]:
    """Return minimum detectable effects by segment, and by arm if arms differ; None if there is none."""
    table = tables[0]
    if column not in table.names:
        return {}
    index = table.names.index(column)
    is_by_arm = len({row[1] for row in table.rows}) > 1
    return {f"{row[1]}, {row[0]}" if is_by_arm else str(row[0]): cast("float | None", row[index]) for row in table.rows}


Kind: TypeAlias = Literal["as it is", "trust", "epsilon", "features", "algorithm", "forgetting", "people", "rounds"]
"""The kind of change of a variant."""
_ROUND_SIZE_FACTOR: Final = 3
"""Factor of larger and smaller rounds that are tried."""
_TRIED_GROWTH: Final = 0.3
"""Growth of rounds that is tried if they hardly grow."""
_DEFAULT_EPSILON: Final = 1.0
"""Epsilon to compare with if a spec has no promise."""


@dataclass(frozen=True)
class VariedSpec:
    """A spec with one thing changed."""

    kind: Kind  # of the change
    change: str  # how, in a few words
    variant: Variant  # the changed spec, under its promise
    full_spec: ArmsSpec | None = None  # the spec of the population, if this one has only some of its features

    @property
    def spec(self) -> Spec:
        """The changed spec."""
        return self.variant.spec

    @property
    def is_contextual(self) -> bool:
        """Whether its algorithm chooses by features."""
        return isinstance(self.spec, ArmsSpec) and self.spec.algorithm.name in contextual_algorithms()

    def play(self, seed: int, seconds: float) -> PartialRun | SpecError:
        """Run the spec once, as `partial_runs.run_partially`; an error names the promise."""
        full_spec, spec = self.full_spec, cast(ArmsSpec, self.spec)
        factory = (lambda s: restrict_to(environment_for(full_spec, s), full_spec, spec)) if full_spec else None
        result = run_partially(self.spec, seed, seconds, factory)
        return name_promise_in_error(self.spec, result) if isinstance(result, SpecError) else result


def list_choices(
    spec: Spec, models: Sequence[str] | None = None, epsilons: Sequence[float] | None = None
) -> tuple[list[VariedSpec], list[Refusal]]:
    """List the spec with people and its variants, of a selection by default, and the promises that are impossible."""
    baseline = VariedSpec("as it is", "as the spec says", Variant(spec.privacy.model, spec.privacy.bound, spec))
    if models or epsilons:
        usual = [spec.privacy.bound if spec.privacy.trust.promises else _DEFAULT_EPSILON]
        variants, refused = try_promises(spec, models or MODELS, epsilons or usual)
        own_promise = spec.privacy.model, spec.privacy.bound
        others = [variant for variant in variants if (variant.model, variant.epsilon) != own_promise]
        return [baseline, *(VariedSpec("trust", _format_promise(variant), variant) for variant in others)], refused
    promises, refused = _vary_promise(spec)
    changes = [] if is_effect_spec(type(spec)) else [*_vary_features(spec), *_vary_algorithm(spec), *_vary_sizes(spec)]
    return [baseline, *promises, *changes], refused


def _format_promise(variant: Variant) -> str:
    if not math.isfinite(variant.epsilon):
        return "without privacy"
    is_served = variant.spec.privacy.trust.is_served
    return f"{variant.model}, epsilon {variant.epsilon:g}" + ("" if is_served else ", in simulation alone")


def _vary_promise(spec: Spec) -> tuple[list[VariedSpec], list[Refusal]]:
    """Return variants with each trust model at the same epsilon, without privacy first, and with further epsilons."""
    privacy = spec.privacy
    epsilon = privacy.bound if privacy.trust.promises else _DEFAULT_EPSILON
    rows = (row for row in TRUST.values() if row != privacy.trust and row.is_served)
    other_rows = sorted(rows, key=lambda row: row.promises)
    variants, refused = try_promises(spec, [row.name for row in other_rows], [epsilon])
    changes = [VariedSpec("trust", _format_promise(variant), variant) for variant in variants]
    if privacy.trust.promises:
        epsilons = [value for value in (2 * epsilon, epsilon / 2) if value <= EPSILON_MAX]
        variants, more_refused = try_promises(spec, [privacy.model], epsilons)
        changes += [VariedSpec("epsilon", f"epsilon {variant.epsilon:g}", variant) for variant in variants]
        refused += more_refused
    return changes, refused


def _vary_features(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec with subsets of features that pay, and with the best algorithm for the largest subset."""
    if (
        not isinstance(spec, ArmsSpec)
        or not spec.capabilities.context_decides
        or spec.sources
        or len(spec.features) < 2
    ):
        return
    sets = find_affordable_sets(to_tables(spec), estimate_outcomes(spec, environment_for(spec, 0)))
    promise = spec.privacy.model, spec.privacy.bound
    for names in sets.names:
        if len(names) < len(spec.features):
            with suppress(SpecError):  # another section refers to a dropped feature
                changed = cast(ArmsSpec, parse_spec(with_features(spec.model_dump(exclude_none=True), names)))
                yield VariedSpec("features", join_names(tuple(changed.features)), Variant(*promise, changed), spec)
    name, best_features = sets.best, sets.by_algorithm[sets.best].last.names
    if best_features and name != spec.algorithm.name:
        changed_spec = with_algorithm(with_features(to_tables(spec), best_features), name)
        if changed_spec is not None:
            change = f"{join_names(tuple(changed_spec.features))}, by {name!r}"
            yield VariedSpec("features", change, Variant(*promise, changed_spec), spec)


def _vary_algorithm(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec with each other algorithm in its default settings."""
    if not isinstance(spec, ArmsSpec) or spec.algorithm.name not in contextual_algorithms() or spec.sources:
        return
    for name in candidate_names():
        changed = with_algorithm(to_tables(spec), name) if name != spec.algorithm.name else None
        if changed is not None:
            variant = Variant(spec.privacy.model, spec.privacy.bound, changed)
            yield VariedSpec("algorithm", name, variant, None if changed.features else spec)


def join_names(names: Sequence[str]) -> str:
    """Join names as an enumeration."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _vary_sizes(spec: Spec) -> Iterator[VariedSpec]:
    """Yield the spec without forgetting, with more and fewer participants, and with other rounds."""
    n_participants, key = getattr(spec.experiment, spec.people_key), spec.people_key
    if getattr(spec.algorithm, "half_lives", ()):  # says what it costs where nothing moves
        yield from _vary_forgetting(cast(ArmsSpec, spec))
    for times in (0.5, 2):
        target = max(1, int(n_participants * times))
        yield from _vary(spec, "people", f"{target:,} people", {key: target})
    if isinstance(spec, ArmsSpec):
        round_size, growth = spec.experiment.round_size, spec.experiment.min_round_fraction
        if spec.capabilities.rounds_grow and growth < _TRIED_GROWTH / 2:
            yield from _vary(
                spec, "rounds", f"rounds that grow by {_TRIED_GROWTH:g}", {"min_round_fraction": _TRIED_GROWTH}
            )
        min_batch_size = spec.smallest_batch
        for target in (round_size * _ROUND_SIZE_FACTOR, max(min_batch_size, round_size // _ROUND_SIZE_FACTOR)):
            if target != round_size:
                yield from _vary(spec, "rounds", f"first rounds of {target:,}", {"round_size": target})


def _vary_forgetting(spec: ArmsSpec) -> Iterator[VariedSpec]:
    """Yield the spec without forgetting, in rounds that are usual then."""
    tables = to_tables(spec)
    del tables["algorithm"]["half_life"]
    yield from _parse_variant(spec, "forgetting", "nothing forgotten", tables)


def _vary(spec: Spec, kind: Kind, change: str, values: dict[str, Any]) -> Iterator[VariedSpec]:
    """Yield the spec with other values of the experiment, if it is valid."""
    tables = spec.model_dump(exclude_none=True)
    tables["experiment"] |= values
    yield from _parse_variant(spec, kind, change, tables)


def _parse_variant(spec: Spec, kind: Kind, change: str, tables: dict[str, Any]) -> Iterator[VariedSpec]:
    with suppress(SpecError):
        yield VariedSpec(kind, change, Variant(spec.privacy.model, spec.privacy.bound, parse_spec(tables)))


def with_default_population(spec: Spec) -> Spec:
    """Return a spec with a population: its own, or the default one."""
    return spec if spec.population is not None else spec.model_copy(update={"population": default_environment(spec)})
