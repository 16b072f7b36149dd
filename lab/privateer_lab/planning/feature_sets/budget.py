"""Features that pay under each promise, and the value of another feature, more participants or a larger epsilon."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.feature_sets.afforded import find_affordable_sets, with_features
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, estimate_outcomes
from privateer_lab.planning.feature_sets.selection import evaluate_set
from privateer_lab.planning.other_algorithms import to_tables, with_own_rounds
from privateer_lab.planning.plans import EPSILON_MAX, Variant, try_promises


class FeatureBudget(msgspec.Struct, frozen=True):
    """The features that pay under a promise, and mean rewards by surrogate runs; None where the spec is invalid."""

    # the trust model, epsilon (None: nothing is promised), the algorithm and its features
    model: str
    epsilon: float | None
    algorithm: str
    features: tuple[str, ...]
    value: float  # mean reward with these features
    margin: float  # two standard errors of it
    single: float  # mean reward of a single arm that is learned under the promise
    another: str | None  # the feature that would add most
    with_another: float | None
    with_twice_people: float | None
    with_twice_epsilon: float | None


def feature_budgets(spec: ArmsSpec, promises: Iterable[Variant]) -> list[FeatureBudget]:
    """Return the features that pay under each promise, on a spec's population."""
    outcomes = estimate_outcomes(spec, environment_for(spec, 0))
    return [_find_budget(promise, outcomes) for promise in promises]


def _find_budget(promise: Variant, outcomes: PotentialOutcomes) -> FeatureBudget:
    """Find the best affordable set of features, and the rewards with a further feature, twice the people or epsilon."""
    tables = to_tables(promise.spec)  # type: ignore[arg-type]
    reward = promise.spec.reward
    sets = find_affordable_sets(tables, outcomes)
    chain, name, next_set = sets.by_algorithm[sets.best], sets.best, sets.next_set
    names, mean_expected = chain.last.names, float(outcomes.expected.mean())

    def unit(gain: float) -> float:
        return reward.low + reward.span * (mean_expected + gain)

    def evaluate(changed_tables: dict[str, Any], names: Sequence[str]) -> float | None:
        spec = with_own_rounds(with_features(changed_tables, names), name) if names else None
        return None if spec is None else unit(evaluate_set(outcomes, names, spec).value)

    doubled_tables = tables | {"experiment": tables["experiment"] | {"horizon": 2 * tables["experiment"]["horizon"]}}
    can_double = promise.spec.privacy.trust.promises and 2 * promise.epsilon <= EPSILON_MAX
    doubled, _ = try_promises(promise.spec, [promise.model] if can_double else [], [2 * promise.epsilon])
    return FeatureBudget(
        model=promise.model,
        epsilon=promise.epsilon if promise.spec.privacy.trust.promises else None,
        algorithm=name if names else "",
        features=names,
        value=unit(chain.last.value),
        margin=2 * reward.span * chain.last.standard_error,
        single=unit(chain.sets[0].value),
        another=next((name for name in next_set.names if name not in names), None) if next_set else None,
        with_another=unit(next_set.value) if next_set else None,
        with_twice_people=evaluate(doubled_tables, names),
        with_twice_epsilon=evaluate(to_tables(doubled[0].spec), names) if doubled else None,  # type: ignore[arg-type]
    )
