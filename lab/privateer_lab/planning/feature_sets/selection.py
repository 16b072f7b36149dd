"""Forward selection of features under a promise: each feature has to add clearly more than noise costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from privateer_core.privacy.cell_reports import CellReports
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.planning.feature_sets.outcomes import Array, PotentialOutcomes
from privateer_lab.planning.feature_sets.surrogate import SurrogateRuns

MAX_CANDIDATES: Final = 6
"""Most candidate features, those with the largest gain without noise."""
MIN_STANDARD_ERRORS: Final = 2.0
"""Standard errors of the difference by which a set with another feature must earn more."""
_N_REPEATS: Final = 4


@dataclass(frozen=True)
class FeatureSet:
    """Features, and the participants' gains from choosing by them, above the expected average over arms."""

    names: tuple[str, ...]
    by_person: Array = field(repr=False)  # mean over repeats, (n,)
    by_repeat: Array = field(repr=False)  # mean over participants, (repeats,)

    @property
    def value(self) -> float:
        """The mean gain over participants."""
        return float(self.by_person.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the value, from participants and noise."""
        return _standard_error(self.by_person, self.by_repeat)

    def is_clearly_better_than(self, other: "FeatureSet") -> bool:
        """Whether it adds more than `MIN_STANDARD_ERRORS` errors of the difference, from participants and noise."""
        gains = self.by_person - other.by_person
        error = _standard_error(gains, self.by_repeat - other.by_repeat)
        return bool(gains.mean() > MIN_STANDARD_ERRORS * error)


def _standard_error(by_person: Array, by_repeat: Array) -> float:
    """Return the standard error of a mean gain over participants and repeats."""
    return float(np.sqrt(by_person.var() / len(by_person) + by_repeat.var(ddof=1) / len(by_repeat)))


def evaluate_set(outcomes: PotentialOutcomes, names: Sequence[str], spec: ArmsSpec | None) -> FeatureSet:
    """Evaluate features by surrogate runs of a spec, or, with None, of a learner that sees the log without noise."""
    reports = None if spec is None else CellReports(spec, outcomes.mean, outcomes.variance)
    return FeatureSet(tuple(names), *SurrogateRuns(outcomes, names, reports, _N_REPEATS).evaluate())


def best_option_set(outcomes: PotentialOutcomes) -> FeatureSet:
    """Return the gain of the best arm, known without learning."""
    best = outcomes.gains[:, outcomes.gains.mean(axis=0).argmax()]
    return FeatureSet((), best, np.full(_N_REPEATS, best.mean()))


def rank_features(outcomes: PotentialOutcomes) -> list[str]:
    """Return the features with the largest gains without noise, the best first; only positive gains count."""
    gains = {name: outcomes.explained_gain(name) for name in outcomes.cells}
    return [name for name in sorted(gains, key=lambda feature: -gains[feature]) if gains[name] > 0][:MAX_CANDIDATES]


@dataclass(frozen=True)
class FeatureChain:
    """Feature sets of forward selection, each clearly better than the previous one."""

    sets: tuple[FeatureSet, ...]  # from the empty set on
    next_set: FeatureSet | None  # the first set that is not clearly better; None: no feature is left

    @property
    def last(self) -> FeatureSet:
        """The largest set that pays."""
        return self.sets[-1]


def select_forward(
    names: Sequence[str],
    without_any: FeatureSet,
    evaluate: Callable[[Sequence[str]], FeatureSet | None],
    max_features: int = MAX_CANDIDATES,
) -> FeatureChain:
    """Select features that pay, one at a time (forward selection); ``evaluate`` is None for an invalid spec."""
    chain = [without_any]
    while len(chain[-1].names) < min(max_features, len(names)):
        extensions = [(*chain[-1].names, name) for name in names if name not in chain[-1].names]
        candidates = [candidate for candidate in map(evaluate, extensions) if candidate is not None]
        best = max(candidates, key=lambda candidate: candidate.value, default=None)
        if best is None or not best.is_clearly_better_than(chain[-1]):
            return FeatureChain(tuple(chain), best)
        chain.append(best)
    return FeatureChain(tuple(chain), None)
