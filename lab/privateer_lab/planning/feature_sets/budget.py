"""Features that pay under each promise, and the value of another feature, more participants or a larger epsilon."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.feature_sets.afforded import find_affordable_sets, with_features
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, estimate_outcomes
from privateer_lab.planning.feature_sets.selection import FeatureSet, evaluate_set, rank_features
from privateer_lab.planning.other_algorithms import (
    contextual_algorithms,
    featureless_algorithm,
    to_tables,
    with_own_rounds,
)
from privateer_lab.planning.plans import EPSILON_MAX, Variant, try_promises


class SurrogateMean(msgspec.Struct, frozen=True):
    """A mean reward by surrogate runs, and two of its standard errors."""

    value: float
    margin: float


class FeatureBudget(msgspec.Struct, frozen=True):
    """The features that pay under a promise, and mean rewards by surrogate runs; None where the spec is invalid."""

    # the trust model, epsilon (None: nothing is promised), the algorithm and its features
    model: str
    epsilon: float | None
    algorithm: str
    features: tuple[str, ...]
    reward: SurrogateMean  # with these features
    single: SurrogateMean  # of a single arm that is learned under the promise
    another: str | None  # the feature that would add most; None: no other tells anything
    with_another: SurrogateMean | None
    with_twice_people: SurrogateMean | None
    with_twice_epsilon: SurrogateMean | None


def feature_budgets(spec: ArmsSpec, promises: Iterable[Variant]) -> list[FeatureBudget]:
    """Return the features that pay under each promise, on a spec's population."""
    outcomes = estimate_outcomes(spec, environment_for(spec, 0))
    return [find_budget(promise, outcomes) for promise in promises]


def find_budget(promise: Variant, outcomes: PotentialOutcomes) -> FeatureBudget:
    """Find the best affordable set of features, and the rewards with a further feature, twice the people or epsilon."""
    tables = to_tables(promise.spec)  # type: ignore[arg-type]
    reward = promise.spec.reward
    sets = find_affordable_sets(tables, outcomes)
    chain, mean_expected = sets.by_algorithm[sets.best], float(outcomes.expected.mean())
    names = chain.last.names
    name, summed = sets.best if names else featureless_algorithm(), contextual_algorithms()[-1]

    def evaluate(tables: dict[str, Any], names: Sequence[str], name: str) -> FeatureSet | None:
        spec = with_own_rounds(with_features(tables, names), name)
        return None if spec is None else evaluate_set(outcomes, names, spec)

    def estimate(chosen: FeatureSet | None) -> SurrogateMean | None:
        if chosen is None:
            return None
        value = reward.low + reward.span * (mean_expected + chosen.value)
        return SurrogateMean(value, 2 * reward.span * chosen.standard_error)

    others = [other for other in rank_features(outcomes) if other not in names]
    extensions = [evaluate(tables, (*names, other), summed) for other in ([] if sets.next_set else others)]
    larger = [extension for extension in (sets.next_set, *extensions) if extension is not None]
    next_set = max(larger, key=lambda chosen: chosen.value, default=None)
    doubled_tables = tables | {"experiment": tables["experiment"] | {"horizon": 2 * tables["experiment"]["horizon"]}}
    can_double = promise.spec.privacy.trust.promises and 2 * promise.epsilon <= EPSILON_MAX
    doubled, _ = try_promises(promise.spec, [promise.model] if can_double else [], [2 * promise.epsilon])
    return FeatureBudget(
        model=promise.model,
        epsilon=promise.epsilon if promise.spec.privacy.trust.promises else None,
        algorithm=name,
        features=names,
        reward=cast(SurrogateMean, estimate(chain.last)),
        single=cast(SurrogateMean, estimate(chain.sets[0])),
        another=next((name for name in next_set.names if name not in names), None) if next_set else None,
        with_another=estimate(next_set),
        with_twice_people=estimate(evaluate(doubled_tables, names, name)),
        with_twice_epsilon=estimate(evaluate(to_tables(cast(ArmsSpec, doubled[0].spec)), names, name))
        if doubled
        else None,
    )
