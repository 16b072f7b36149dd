"""Which features pay under which promise: what they earn, and what another, more people or more epsilon would."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.feature_sets.afforded import afforded, with_some
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, expected_outcomes
from privateer_lab.planning.feature_sets.selection import feature_set
from privateer_lab.planning.other_algorithms import tables_of, with_own_rounds
from privateer_lab.planning.plans import EPSILON_MAX, Variant, possible


class FeatureBudget(msgspec.Struct, frozen=True):
    """The features that pay under a promise; rewards are in their own unit, means over all people of a run.

    They are those of surrogates of runs, and None where the spec cannot be so.
    """

    # the trust model, epsilon (None: nothing is promised), the algorithm and its features
    model: str
    epsilon: float | None
    algorithm: str
    features: tuple[str, ...]
    value: float  # what they earn
    single: float  # what one option for all earns that is learned under the promise
    another: str | None  # the feature that would add most
    with_another: float | None
    with_twice_people: float | None
    with_twice_epsilon: float | None


def feature_budgets(spec: ArmsSpec, promises: Iterable[Variant]) -> list[FeatureBudget]:
    """Return the features that pay under each promise, for the people of a spec."""
    outcomes = expected_outcomes(spec, environment_for(spec, 0))
    return [_budget(one, outcomes) for one in promises]


def _budget(promise: Variant, outcomes: PotentialOutcomes) -> FeatureBudget:
    tables = tables_of(promise.spec)  # type: ignore[arg-type]
    reward = promise.spec.reward
    sets = afforded(tables, outcomes)
    chain, name, another = sets.by_algorithm[sets.best], sets.best, sets.another
    names, middle = chain.last.names, float(outcomes.expected.mean())

    def unit(gain: float) -> float:
        return reward.low + reward.span * (middle + gain)

    def earned(changed: dict[str, Any], names: Sequence[str]) -> float | None:
        spec = with_own_rounds(with_some(changed, names), name) if names else None
        return None if spec is None else unit(feature_set(outcomes, names, spec).value)

    more = tables | {"experiment": tables["experiment"] | {"horizon": 2 * tables["experiment"]["horizon"]}}
    return FeatureBudget(
        model=promise.model,
        epsilon=promise.epsilon if promise.spec.privacy.trust.promises else None,
        algorithm=name if names else "",
        features=names,
        value=unit(chain.last.value),
        single=unit(chain.sets[0].value),
        another=next((one for one in another.names if one not in names), None) if another else None,
        with_another=unit(another.value) if another else None,
        with_twice_people=earned(more, names),
        with_twice_epsilon=_doubled(promise, lambda changed: earned(changed, names)),
    )


def _doubled(promise: Variant, earned: Any) -> float | None:
    if not promise.spec.privacy.trust.promises or 2 * promise.epsilon > EPSILON_MAX:
        return None
    try:
        ((twice,), _) = possible(promise.spec, [promise.model], [2 * promise.epsilon])
    except SpecError:
        return None
    found: float | None = earned(tables_of(twice.spec))  # type: ignore[arg-type]
    return found
