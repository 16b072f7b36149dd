"""Which features to keep under a promise: another one has to add more than chance and noise take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from privateer_core.privacy.cell_reports import CellReports
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.planning.feature_sets.outcomes import Array, PotentialOutcomes
from privateer_lab.planning.feature_sets.surrogate import earned

BEST: Final = 6
"""Features that are tried, those that tell most without noise."""
CLEARLY: Final = 2.0
"""Standard errors of the difference by which a set with another feature must earn more."""
_REPEATS: Final = 4
SpecOf = Callable[[Sequence[str]], ArmsSpec | None]


@dataclass(frozen=True)
class FeatureSet:
    """Features, and what every person gets who is told apart by them, above what is expected of all options."""

    names: tuple[str, ...]
    by_person: Array = field(repr=False)  # mean over repeats, (n,)
    by_repeat: Array = field(repr=False)  # mean over people, (repeats,)

    @property
    def value(self) -> float:
        """Mean over people."""
        return float(self.by_person.mean())

    def above(self, other: "FeatureSet") -> tuple[float, float]:
        """Return by how much it is above another set, and the standard error of that, of people and of noise."""
        people, noise = self.by_person - other.by_person, self.by_repeat - other.by_repeat
        return float(people.mean()), float(np.sqrt(people.var() / len(people) + noise.var(ddof=1) / len(noise)))

    def is_clearly_above(self, other: "FeatureSet") -> bool:
        """Whether it adds more than `CLEARLY` standard errors of the difference."""
        difference, error = self.above(other)
        return difference > CLEARLY * error


def feature_set(outcomes: PotentialOutcomes, names: Sequence[str], spec: ArmsSpec) -> FeatureSet:
    """Return what a spec earns with features, in surrogate runs."""
    reports = CellReports(spec, outcomes.mean, outcomes.variance)
    runs = np.stack([earned(outcomes, names, reports, seed) for seed in range(_REPEATS)])
    return FeatureSet(tuple(names), runs.mean(axis=0), runs.mean(axis=1))


def nobody_told(outcomes: PotentialOutcomes) -> FeatureSet:
    """Return what the best option brings without learning which it is."""
    best = outcomes.gains[:, outcomes.gains.mean(axis=0).argmax()]
    return FeatureSet((), best, np.full(_REPEATS, best.mean()))


def most_telling(outcomes: PotentialOutcomes) -> list[str]:
    """Return the features that tell most without noise, the best first; of those alone that tell anything."""
    told = {name: outcomes.told(name) for name in outcomes.cells}
    return [name for name in sorted(told, key=lambda one: -told[one]) if told[name] > 0][:BEST]


@dataclass(frozen=True)
class FeatureChain:
    """Sets of one feature, two and so on, each clearly above the one before, which adds the best feature to it."""

    sets: tuple[FeatureSet, ...]  # from the one of nothing on
    further: FeatureSet | None  # the next one, which is not clearly above the last; None: there is no other feature

    @property
    def last(self) -> FeatureSet:
        """The largest set that pays."""
        return self.sets[-1]


def forward(
    outcomes: PotentialOutcomes, names: Sequence[str], nothing: FeatureSet, spec_of: SpecOf, most: int = BEST
) -> FeatureChain:
    """Return sets of features that pay, one after the other.

    names: features that are tried.
    nothing: what is earned without any.
    spec_of: returns the experiment with some features; None where it cannot be.
    most: features at most.
    """
    found = [nothing]
    while len(found[-1].names) < min(most, len(names)):
        more = [(*found[-1].names, name) for name in names if name not in found[-1].names]
        tried = [feature_set(outcomes, one, spec) for one in more if (spec := spec_of(one)) is not None]
        best = max(tried, key=lambda one: one.value, default=None)
        if best is None or not best.is_clearly_above(found[-1]):
            return FeatureChain(tuple(found), best)
        found.append(best)
    return FeatureChain(tuple(found), None)
