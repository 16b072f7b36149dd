"""Feature sets that an experiment can afford under its promise, and without privacy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.planning.feature_sets.options import select_options
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes
from privateer_lab.planning.feature_sets.selection import (
    FeatureChain,
    FeatureSet,
    best_option_set,
    evaluate_set,
    rank_features,
    select_forward,
)
from privateer_lab.planning.other_algorithms import contextual_algorithms, featureless_algorithm, with_own_rounds


@dataclass(frozen=True)
class AffordedSets:
    """Feature sets that earn clearly more than smaller ones, by algorithm."""

    by_algorithm: Mapping[str, FeatureChain]  # sets of nothing, one feature, two and so on

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The largest set of each algorithm, and its first feature alone, without duplicates."""
        ends = [chosen.names for chain in self.by_algorithm.values() for chosen in (chain.last, chain.sets[:2][-1])]
        return list(dict.fromkeys(tuple(sorted(names)) for names in ends if names))

    @property
    def next_set(self) -> FeatureSet | None:
        """The best set with an additional feature; None if there is no such set."""
        n_features = 1 + len(self.by_algorithm[self.best].last.names)
        candidates = [chosen for chain in self.by_algorithm.values() for chosen in (*chain.sets, chain.next_set)]
        larger = [chosen for chosen in candidates if chosen is not None and len(chosen.names) == n_features]
        return max(larger, key=lambda feature_set: feature_set.value, default=None)

    @property
    def best(self) -> str:
        """The algorithm of the best largest set."""
        return max(self.by_algorithm, key=lambda name: self.by_algorithm[name].last.value)


def with_features(tables: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the tables of a spec with a subset of features, in their order."""
    features = {name: feature for name, feature in tables["context"]["features"].items() if name in names}
    return dict(tables) | {"context": dict(tables["context"]) | {"features": features}}


def with_options(tables: Mapping[str, Any], indices: Sequence[int]) -> dict[str, Any]:
    """Return the tables of a spec with a subset of arms, by index."""
    arms = [tables["experiment"]["arms"][index] for index in indices]
    return dict(tables) | {"experiment": dict(tables["experiment"]) | {"arms": arms}}


def find_affordable_sets(tables: Mapping[str, Any], outcomes: PotentialOutcomes) -> AffordedSets:
    """Find the feature sets that an experiment can afford, by algorithm."""

    def evaluate(algorithm: str, names: Sequence[str]) -> FeatureSet | None:
        spec = with_own_rounds(with_features(tables, names), algorithm)
        return None if spec is None else evaluate_set(outcomes, names, spec)

    ranked, without_any = rank_features(outcomes), evaluate(featureless_algorithm(), ()) or best_option_set(outcomes)
    # Keyed reports divide participants into products of cells, of which a second feature makes most empty.
    keyed, _, summed = contextual_algorithms()
    chain = select_forward(ranked, without_any, partial(evaluate, keyed), max_features=1)
    return AffordedSets({keyed: chain, summed: select_forward(ranked, without_any, partial(evaluate, summed))})


def select_noiseless(outcomes: PotentialOutcomes) -> tuple[str, ...]:
    """Return the features that pay without noise, the most informative first."""
    evaluate = partial(evaluate_set, outcomes, spec=None)
    return select_forward(rank_features(outcomes), evaluate(()), evaluate).last.names


def build_affordable_specs(tables: Mapping[str, Any], outcomes: PotentialOutcomes, *, differ: bool) -> list[ArmsSpec]:
    """Return specs without features, and with those that pay if the best arm may ``differ``; with all and few arms.

    At first come those whose arms are certain, the featureless one among them.
    """

    def reduce_options(name: str, features: Sequence[str]) -> list[dict[str, Any]]:
        restricted = with_features(tables, features)

        def restrict_options(indices: Sequence[int]) -> ArmsSpec | None:
            return with_own_rounds(with_options(restricted, indices), name)

        return [with_options(restricted, arms) for arms in select_options(outcomes, features, restrict_options)]

    keyed, linear, summed = contextual_algorithms()
    first = rank_features(outcomes)[:1]
    sets = list(_paying_sets(tables, outcomes, reduce_options(keyed, first)[0])) if differ else []
    combinations = [(name, names) for names in dict.fromkeys(sets) for name in (keyed, linear, summed)]
    # With fewer arms the most informative feature may pay although its cells do not clearly: runs decide.
    noiseless = select_noiseless(outcomes)[:1] if differ and not sets else ()
    combinations += [(name, noiseless) for name in (keyed, linear) if noiseless]
    reduced = [(name, reduce_options(name, names)) for name, names in (*combinations, (featureless_algorithm(), ()))]
    specs = [with_own_rounds(pair[rank], name) for rank in range(2) for name, pair in reduced]
    return [spec for spec in specs if spec is not None]


def _paying_sets(
    tables: Mapping[str, Any], outcomes: PotentialOutcomes, restricted: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    """Yield feature sets that pay with all arms, and with fewer arms."""
    yield from find_affordable_sets(tables, outcomes).names
    all_arms, kept_arms = (table_set["experiment"]["arms"] for table_set in (tables, restricted))
    if kept_arms != all_arms:
        indices = [all_arms.index(arm) for arm in kept_arms]
        yield from find_affordable_sets(with_options(tables, indices), outcomes.select_options(indices)).names
