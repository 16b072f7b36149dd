"""Forgetting: several discounts of the same evidence side by side, of which the best predictor is used."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.parts import HalfLives
from privateer_server.algorithms.partition.bin_tree import Split
from privateer_server.algorithms.partition.gaussian_process import BinEvidence

Array = NDArray[np.float64]

_ENDLESS: Final = 0.7
"""Probability beforehand that nothing moves; the other half-lives share the rest."""
_SHARED: Final = 20_000.0
"""People after whom half of what is known of the half-lives' merits is forgotten: it may be another's turn."""
_STICKY: Final = 2.0
"""Another half-life takes over when it is this many times as probable."""
_OFTEN: Final = 0.1
"""Posteriors are computed again when people make up this share of the shortest half-life."""


@dataclass(frozen=True)
class Discounted:
    """Discounted evidence under each half-life. All have the same bins, and all learn from every round."""

    evidence: BinEvidence  # as of bins, with an axis of half-lives in front
    probabilities: Array  # shape (half-lives,): how probable it is that each predicts best
    used: int  # the half-life whose evidence makes policies
    own: int  # the experiment's own people who had reported when it was last brought up to date

    @property
    def current(self) -> BinEvidence:
        """The evidence under the half-life in use."""
        return self.evidence.of(self.used)

    @property
    def endless(self) -> BinEvidence:
        """The evidence that has not faded."""
        return self.evidence.of(0)

    def weighed(self, scores: Array, people: int) -> "Discounted":
        """Use what predicts best, after the logarithms of the densities (half-lives,) that were predicted."""
        left = 0.5 ** (people / _SHARED)
        merits = left * self.probabilities + (1 - left) * beforehand(len(scores))
        merits = merits * np.exp(scores - np.max(scores))
        merits = np.maximum(merits / merits.sum(), 1e-12)
        best = int(np.argmax(merits))
        used = best if merits[best] > _STICKY * merits[self.used] else self.used
        return replace(self, probabilities=merits, used=used)

    def with_arms(self, added: int) -> "Discounted":
        """Return it with so many more arms at the end, of which nothing is known."""
        return replace(self, evidence=self.evidence.with_arms(added))

    def split(self, split: Split) -> "Discounted":
        """Return it after bins were split."""
        return replace(self, evidence=self.evidence.split(split))


class Forgetting:
    """The rule by which evidence fades.

    half_lives: people after whose reports evidence counts half, the endless one first; empty: nothing fades.
    chooses: whether the half-life that predicts best is used; else the last one is.
    """

    def __init__(self, half_lives: tuple[float, ...], *, chooses: bool) -> None:
        self.half_lives, self._chooses = half_lives, chooses

    def start(self, arms: int) -> Discounted | None:
        """Return evidence without any report, of one bin; None where nothing fades."""
        if not self.half_lives:
            return None
        members = len(self.half_lives)
        used = 0 if self._chooses else members - 1
        return Discounted(BinEvidence.nothing(members, 1, arms), beforehand(members), used, 0)

    def half_life(self, known: Discounted | None) -> float:
        """Return people after whose reports what is known counts half."""
        return self.half_lives[known.used] if known else math.inf

    def is_due(self, people: int) -> bool:
        """Whether so much has faded after so many people that posteriors are to be computed again."""
        return bool(self.half_lives) and people >= _OFTEN * min(self.half_lives)

    def updated(
        self,
        known: Discounted,
        evidence: BinEvidence,
        own: int,
        score: Callable[[BinEvidence, float, BinEvidence], float],
    ) -> Discounted:
        """Have evidence fade and predict what came since it did so last; then use the best and add what came.

        evidence: that of the half-life in use, with what came since.
        own: the experiment's own people who have reported.
        score: logarithm of the density that evidence, of such a half-life, predicted for what came.
        """
        before, people = known.current, own - known.own
        nothing = np.zeros_like(evidence.past_precision)
        came = BinEvidence(evidence.precision - before.precision, evidence.moment - before.moment, nothing, nothing)
        faded = replace(known, evidence=self.faded(known.evidence, people), own=own)
        if self._chooses:
            scores = [score(faded.evidence.of(place), life, came) for place, life in enumerate(self.half_lives)]
            faded = faded.weighed(np.array(scores), people)
        return replace(faded, evidence=faded.evidence.added(came.precision, came.moment))

    def faded(self, evidence: BinEvidence, people: int) -> BinEvidence:
        """Return what is left of the evidence under each half-life after so many people."""
        return evidence.scaled(0.5 ** (people / np.array(self.half_lives))[:, None, None])

    def found(self, known: Discounted) -> HalfLives:
        """Return which half-life is used, with the probability of each."""
        lives = tuple(None if math.isinf(one) else one for one in self.half_lives)
        probabilities = tuple(round(float(one), 4) for one in known.probabilities) if self._chooses else None
        return HalfLives(lives[known.used], lives, probabilities)


def beforehand(half_lives: int) -> Array:
    """Return the probability beforehand that each half-life predicts best; the endless one is the first."""
    probabilities = np.full(half_lives, (1 - _ENDLESS) / max(1, half_lives - 1))
    probabilities[0] = _ENDLESS
    return probabilities
