"""The evidence of a trial: weighted hits of each arm and its control, and the scores of every look."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from privateer_core.arrays import Array
from privateer_server.algorithms.trial.evidence.averages import Average, average_contributions, side_variances
from privateer_server.algorithms.trial.evidence.epochs import (
    Epoch,
    TrialDesign,
    common_weights,
    contrast_variances,
    stable_weights,
)
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums, standardized_scores
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions


@dataclass(frozen=True)
class TrialEvidence:
    """The sum of a trial's releases."""

    design: TrialDesign  # what was planned
    people: Array  # shape (looks,): all reports up to each look
    # with weights u = sqrt(V0/V), V an epoch's variance and V0 the same at planned shares: every epoch adds variance as
    # planned whatever its shares, so that looks correlate as boundaries assume (Lehmacher and Wassmer 1999,
    # variance-stabilising weights of Hadad et al. 2021). For intervals.
    stable: Sums
    precise: Sums  # with weights V0/V: the least variance. For allocation, and for curves without intervals.
    # with one weight for all segments, sqrt(sum V0/sum V): for sums over segments. With a weight of its own a segment
    # that looks extreme early counts more in such a sum, which is then found to differ from 0 too often.
    common: Sums
    scores: Array  # shape (looks, J, K): the difference over its standard deviation at each look; nan where not `ready`
    # shape (looks, K): the same of the average effect over segments; nan until everybody's hits together are ready
    average_scores: Array

    @classmethod
    def begin(cls, design: TrialDesign) -> Self:
        """Return the evidence without releases."""
        contrasts, no_sums = (len(design.segments), len(design.arms) - 1), Sums.empty(design)
        no_looks = np.zeros((0, *contrasts))
        return cls(design, np.zeros(0), no_sums, no_sums, no_sums, no_looks, np.zeros((0, contrasts[1])))

    def add(self, epoch: Epoch) -> "TrialEvidence":
        """Return the evidence with an epoch, which ends with a look."""
        planned, actual = contrast_variances(self.design, epoch)
        stable = self.stable.add(epoch, stable_weights(self.design, epoch))
        n_before = self.people[-1] if len(self.people) else 0.0
        updated = replace(
            self,
            people=np.append(self.people, n_before + epoch.people),
            stable=stable,
            precise=self.precise.add(epoch, planned / actual),
            common=self.common.add(epoch, common_weights(planned, actual)),
        )
        return replace(
            updated,
            scores=np.concatenate([self.scores, standardized_scores(stable)[None]]),
            average_scores=np.concatenate([self.average_scores, updated.average.scores[None]]),
        )

    @property
    def looks(self) -> int:
        """The number of epochs added."""
        return len(self.people)

    @property
    def times(self) -> tuple[float, ...]:
        """Information fractions of the looks."""
        return information_fractions(self.people, self.design.people)

    @property
    def critical(self) -> float:
        """Critical value of the last look; infinite where that has no boundary."""
        return float(critical_values(self.times, self.design.alpha)[-1])

    @property
    def average(self) -> "Average":
        """The effect averaged over all segments, by participants."""
        return average_contributions(self.common, self.design)

    def average_sides(self, critical: float) -> tuple[Array, Array]:
        """Return variances of the average effects for the lower and the upper end of their intervals, (K,) each."""
        return side_variances(self.common, self.design, self.average.contributions, critical)
