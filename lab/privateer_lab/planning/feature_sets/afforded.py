"""Sets of features that an experiment can afford under its promise, and what it would have without one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import environment_for
from privateer_lab.planning.feature_sets.options import worth_trying
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, expected_outcomes
from privateer_lab.planning.feature_sets.selection import (
    FeatureChain,
    FeatureSet,
    feature_set,
    forward,
    most_telling,
    nobody_told,
)
from privateer_lab.planning.other_algorithms import by_features, tables_of, with_own_rounds, without_features


@dataclass(frozen=True)
class AffordedSets:
    """Sets of features that earn clearly more than smaller ones, by the algorithm that learns with them."""

    by_algorithm: Mapping[str, FeatureChain]  # sets of nothing, one feature, two and so on

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The largest set of each algorithm, and its first feature alone; each once."""
        ends = [one.names for some in self.by_algorithm.values() for one in (some.last, some.sets[:2][-1])]
        return list(dict.fromkeys(tuple(sorted(one)) for one in ends if one))

    @property
    def another(self) -> FeatureSet | None:
        """The best set with one feature more than the one that earns most; None: there is none."""
        wanted = 1 + len(self.by_algorithm[self.best].last.names)
        tried = [one for some in self.by_algorithm.values() for one in (*some.sets, some.further)]
        more = [one for one in tried if one is not None and len(one.names) == wanted]
        return max(more, key=lambda one: one.value, default=None)

    @property
    def best(self) -> str:
        """The algorithm whose largest set earns most."""
        return max(self.by_algorithm, key=lambda name: self.by_algorithm[name].last.value)


def with_some(tables: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return tables of a spec with some of its features, in their order."""
    features = {name: one for name, one in tables["context"]["features"].items() if name in names}
    return dict(tables) | {"context": dict(tables["context"]) | {"features": features}}


def with_options(tables: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """Return tables of a spec with some of its options, by their places."""
    arms = [tables["experiment"]["arms"][place] for place in places]
    return dict(tables) | {"experiment": dict(tables["experiment"]) | {"arms": arms}}


def afforded(tables: Mapping[str, Any], outcomes: PotentialOutcomes) -> AffordedSets:
    """Return the sets of features that an experiment can afford."""

    def spec_of(algorithm: str, names: Sequence[str]) -> ArmsSpec | None:
        return with_own_rounds(with_some(tables, names), algorithm)

    plain, best = spec_of(without_features(), ()), most_telling(outcomes)
    nothing = feature_set(outcomes, (), plain) if plain else nobody_told(outcomes)
    # Reports about a key of all features part people by products of cells: a second feature makes most of them empty.
    keyed, summed = by_features()[0], by_features()[-1]
    found = {
        keyed: forward(outcomes, best, nothing, lambda names: spec_of(keyed, names), most=1),
        summed: forward(outcomes, best, nothing, lambda names: spec_of(summed, names)),
    }
    return AffordedSets(found)


def sets_for(spec: ArmsSpec) -> AffordedSets:
    """Return the sets of features that pay for the people of a spec."""
    return afforded(tables_of(spec), expected_outcomes(spec, environment_for(spec, 0)))


def unnoised(tables: Mapping[str, Any], outcomes: PotentialOutcomes) -> int:
    """Return how many features an experiment would have that promises nothing."""
    free = next(name for name, row in TRUST.items() if not row.promises)
    return max(map(len, afforded(dict(tables) | {"privacy": {"model": free}}, outcomes).names), default=0)


def affordable(
    tables: Mapping[str, Any], outcomes: PotentialOutcomes, *, differ: bool
) -> dict[tuple[str, tuple[str, ...]], ArmsSpec]:
    """Return the experiment with each set that pays, if people ``differ``, and with none, by algorithm and features.

    Each has the options that are worth trying with it: sets may pay with few that do not with all of them.
    """

    def worth(name: str, features: Sequence[str]) -> dict[str, Any]:
        some = with_some(tables, features)
        return with_options(
            some, worth_trying(outcomes, features, lambda places: with_own_rounds(with_options(some, places), name))
        )

    keyed, summed = by_features()[0], by_features()[-1]
    names = list(_paying(tables, outcomes, worth(keyed, most_telling(outcomes)[:1]))) if differ else []
    tried = [(name, one) for one in dict.fromkeys(names) for name in (keyed, summed)] + [(without_features(), ())]
    specs = {(name, one): with_own_rounds(worth(name, one), name) for name, one in tried}
    return {(name, tuple(spec.features)): spec for (name, _), spec in specs.items() if spec is not None}


def _paying(
    tables: Mapping[str, Any], outcomes: PotentialOutcomes, fewer: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    """Yield sets that pay with all options, and with fewer."""
    yield from afforded(tables, outcomes).names
    every, few = (one["experiment"]["arms"] for one in (tables, fewer))
    if few != every:
        some = [every.index(one) for one in few]
        yield from afforded(with_options(tables, some), outcomes.of(some)).names
