"""The policy of phased elimination: which actions are played in a phase, who is asked, and what they tell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import BoundedVectors
from privateer.draw import drawn, place
from privateer.errors import InputError, Malformed
from privateer.mechanisms.vector_terms import VectorTerms

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class PhasedPolicy:
    """One phase (paper 5, Algorithm 1, lines 4 to 7).

    Attributes
    ----------
    version
        Of this round's policy, from 1: no number of a phase, since a phase may take several rounds.
    active
        Shape (a,), int64: rows of the actions that may still be the best, rising.
    support
        Shape (s,), int64: rows of the actions that are played, rising.
    plays
        Shape (s,), int64: how often each is played, T(x).
    seed, start
        The public draw of who is asked, and its first place; see `privateer.sampling.drawn`.
    middle
        Of the range of rewards.
    terms
        How reports are randomized, and how many are wanted: 0 in the last phase, from which nothing is learned.
    places
        People who are asked for them: as many, or more if not everybody answers.
    """

    version: int
    active: Indices
    support: Indices
    plays: Indices
    seed: int
    start: int
    middle: float
    terms: VectorTerms
    places: int

    @property
    def rounds(self) -> int:
        """Length of the phase: how often any action is played."""
        return int(self.plays.sum())

    @property
    def mechanism(self) -> Any:
        """What randomizes, adds up and releases the phase's vectors."""
        return self.terms.privatizer()

    def check(self, actions: int) -> None:
        """Refuse a policy that no learner makes.

        Raises
        ------
        Malformed
            If an array has the wrong shape or range, or the terms are for another number of actions.
        """
        arrays = (self.active, self.support, self.plays)
        typed = all(array.dtype == np.int64 and array.ndim == 1 and len(array) for array in arrays)
        if not (typed and self._consistent(actions)):
            raise Malformed("not a phased policy", remedy="fetch the policy again")

    def _consistent(self, actions: int) -> bool:
        rising = all(bool((np.diff(rows) > 0).all()) for rows in (self.active, self.support))
        within = int(np.min(self.active)) >= 0 and int(np.max(self.active)) < actions
        played = bool(np.isin(self.support, self.active).all()) and bool((self.plays >= 1).all())
        sizes = len(self.plays) == len(self.support) == self.terms.coordinates
        draw = 0 <= self.seed < 1 << 63 and self.start >= 0 and 0 <= self.terms.batch <= self.places
        return rising and within and played and sizes and draw

    def asked(self, people: int) -> Indices:
        """Who of a population is asked, shape (places,); nobody is asked in two phases."""
        return drawn(self.seed, people, self.start, self.places)

    def asks(self, people: int, number: int) -> bool:
        """Whether the person of that number is asked, as each device finds out for itself."""
        return 0 <= place(self.seed, people, number) - self.start < self.places

    def contribute(self, slots: NDArray[np.uint32], averages: NDArray[np.float64]) -> BoundedVectors:
        """What n people have to tell: everybody's average reward of each action played, less the middle of the range.

        The mechanism clips it to the range before anything else happens to it.

        Parameters
        ----------
        slots
            Shape (n,).
        averages
            Shape (n, s), in the rewards' own units; column j of action ``support[j]``.

        Raises
        ------
        InputError
            If the shape is another.
        """
        if averages.ndim != 2 or averages.shape[1] != len(self.support):
            raise InputError(
                f"must be {len(self.support)} averages", field="rewards", remedy="report one for each action played"
            )
        return BoundedVectors(slots, averages - self.middle)

    def describe(self) -> dict[str, Any]:
        """The phase for people and other languages; actions by their rows, from 0."""
        return {
            "algorithm": "phased",
            "version": self.version,
            "active": self.active.tolist(),
            "plays": dict(zip(map(str, self.support.tolist()), self.plays.tolist(), strict=True)),
            "clients": self.terms.batch,
            "draw": {"seed": self.seed, "start": self.start, "places": self.places},
        }
