"""The sample-ratio check: whether arms are heard from as often as slots give them. Free, since slots are public."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.boundaries import critical_values, information

Array = NDArray[np.float64]

ALERT: Final = 1e-3
"""Probability of an alert, at any look, when nothing is lost."""


@dataclass(frozen=True)
class Ratio:
    """Public counts of slots per arm against their shares, added up over epochs.

    Attributes
    ----------
    planned
        Reports planned over the whole trial.
    people
        Shape (looks,): all reports up to each look.
    excess, variance
        Shape (K + 1,): slots beyond what the shares say, and its variance.
    scores
        Shape (looks, K + 1): one over the other's root.
    """

    planned: float
    people: Array
    excess: Array
    variance: Array
    scores: Array

    def add(self, people: float, counts: Array, shares: Array) -> "Ratio":
        """Add an epoch.

        While shares differ between segments, ``counts`` are of slots that give the same arm in every segment, and
        ``shares`` their probabilities, which then sum to less than 1.

        Parameters
        ----------
        people
            Reports of the epoch.
        counts, shares
            Shape (K + 1,): slots heard from, of those reports, and their probabilities, public before the round.
        """
        return self.extended(people, counts - people * shares, people * shares * (1 - shares))

    def extended(self, people: float, more: Array, spread: Array) -> "Ratio":
        """Add an epoch of so many people, with people beyond what the shares say, (K + 1,), and its variance."""
        before = self.people[-1] if len(self.people) else 0.0
        excess, variance = self.excess + more, self.variance + spread
        scores = excess / np.sqrt(np.where(variance > 0, variance, np.inf))
        totals = np.append(self.people, before + people)
        return Ratio(self.planned, totals, excess, variance, np.concatenate([self.scores, scores[None]]))

    @property
    def alert(self) -> bool:
        """Whether an arm was heard from too often or too seldom, at any look."""
        arms = self.scores.shape[1]
        # Two arms' counts mirror each other: one test.
        level = ALERT if arms == 2 else ALERT / arms
        critical = critical_values(information(self.people, self.planned), level)
        return bool((np.abs(self.scores) > critical[:, None]).any())


def count(planned: float, arms: int) -> Ratio:
    """A check that has seen nothing."""
    return Ratio(planned, np.zeros(0), np.zeros(arms), np.zeros(arms), np.zeros((0, arms)))
