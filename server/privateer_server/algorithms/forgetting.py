"""Forgetting: evidence under several half-lives in parallel, and which of them predicts best."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Self, TypeVar

import numpy as np

from privateer_core.answer.parts import HalfLives
from privateer_core.arrays import Array

_ENDLESS_PRIOR: Final = 0.7  # probability beforehand that nothing moves; the other half-lives share the rest
_MERIT_HALF_LIFE: Final = 20_000.0
"""People after whom half of what is known of the half-lives' merits is forgotten: it may be another's turn."""
_SWITCH_ODDS: Final = 2.0  # another half-life takes over when it is this many times as probable
_RECOMPUTE_SHARE: Final = 0.1  # posteriors are computed again when people make up this share of the shortest half-life


class Evidence:
    """Sums over reports, which fade: a frozen dataclass of arrays, (..., arms), and of other evidence."""

    def each(self, change: Callable[..., Array], *others: Self) -> Self:
        """Apply a function to each array, with the arrays of other evidence as further arguments."""
        changed = []
        for name, values in vars(self).items():
            arguments = [getattr(other, name) for other in others]
            is_evidence = isinstance(values, Evidence)
            changed.append(values.each(change, *arguments) if is_evidence else np.asarray(change(values, *arguments)))
        return type(self)(*changed)

    def select(self, index: int) -> Self:
        """Return one entry of the first axis."""
        return self.each(lambda values: values[index])

    def scaled(self, shares: float | Array) -> Self:
        """Return the evidence multiplied by a share, or each entry of the first axis by its own."""
        return self.each(lambda values: (values.T * shares).T)

    def plus(self, other: Self) -> Self:
        """Return the evidence with that of other reports."""
        return self.each(np.add, other)

    def with_arms(self, n_added: int) -> Self:
        """Return the evidence with additional arms at the end, without reports."""
        return self.each(lambda values: pad_last_axis(values, n_added))


def pad_last_axis(values: Array, n_added: int) -> Array:
    """Return an array by arm, (..., arms), padded with zeros for additional arms."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, n_added)])


EvidenceT = TypeVar("EvidenceT", bound=Evidence)


@dataclass(frozen=True)
class Discounted(Generic[EvidenceT]):
    """Discounted evidence under each half-life. All learn from every round."""

    evidence: EvidenceT  # with an axis of half-lives in front
    probabilities: Array  # shape (half-lives,): how probable it is that each predicts best
    used: int  # the half-life whose evidence makes policies
    n_own_reports: int  # the experiment's own people who had reported when it was last brought up to date

    @property
    def current(self) -> EvidenceT:
        """The evidence under the half-life in use."""
        return self.evidence.select(self.used)

    @property
    def endless(self) -> EvidenceT:
        """The evidence that has not faded."""
        return self.evidence.select(0)

    def choose_half_life(self, scores: Array, n_reports: int) -> "Discounted[EvidenceT]":
        """Return the evidence with updated probabilities of half-lives, after their log predictive densities."""
        retention = 0.5 ** (n_reports / _MERIT_HALF_LIFE)
        merits = retention * self.probabilities + (1 - retention) * prior_probabilities(len(scores))
        merits = merits * np.exp(scores - np.max(scores))
        merits = np.maximum(merits / merits.sum(), 1e-12)
        best = int(np.argmax(merits))
        used = best if merits[best] > _SWITCH_ODDS * merits[self.used] else self.used
        return replace(self, probabilities=merits, used=used)

    def with_arms(self, n_added: int) -> "Discounted[EvidenceT]":
        """Return the evidence with additional arms without reports."""
        return replace(self, evidence=self.evidence.with_arms(n_added))


class ForgettingRule:
    """The rule by which evidence is discounted.

    half_lives: people after whose reports evidence counts half, the endless one first; empty: nothing fades.
    chooses: whether the half-life that predicts best is used; else the last one is.
    """

    def __init__(self, half_lives: tuple[float, ...], *, chooses: bool) -> None:
        self.half_lives, self._chooses = half_lives, chooses

    def start(self, evidence: EvidenceT) -> Discounted[EvidenceT] | None:
        """Return the evidence, before any report, under each half-life; None without forgetting."""
        if not self.half_lives:
            return None
        n_lives = len(self.half_lives)
        used = 0 if self._chooses else n_lives - 1
        copies = evidence.each(lambda values: np.stack([values] * n_lives))
        return Discounted(copies, prior_probabilities(n_lives), used, 0)

    def half_life(self, discounted: Discounted[EvidenceT] | None) -> float:
        """Return the half-life of evidence, in participants."""
        return self.half_lives[discounted.used] if discounted else math.inf

    def is_due(self, n_reports: int) -> bool:
        """Whether evidence has been discounted enough since the last update to compute posteriors again."""
        return bool(self.half_lives) and n_reports >= _RECOMPUTE_SHARE * min(self.half_lives)

    def add_evidence(
        self,
        discounted: Discounted[EvidenceT],
        new_evidence: EvidenceT,
        n_own_reports: int,
        score: Callable[[EvidenceT, float, EvidenceT], float],
    ) -> Discounted[EvidenceT]:
        """Return discounted evidence with new evidence, and probabilities of half-lives by their predictions of it.

        n_own_reports: reports of the experiment's own participants, with those of the new evidence.
        score: logarithm of the density that evidence, of such a half-life, predicted for what came.
        """
        n_reports = n_own_reports - discounted.n_own_reports
        faded = replace(discounted, evidence=self.faded(discounted.evidence, n_reports), n_own_reports=n_own_reports)
        if self._chooses:
            scores = [
                score(faded.evidence.select(index), life, new_evidence) for index, life in enumerate(self.half_lives)
            ]
            faded = faded.choose_half_life(np.array(scores), n_reports)
        return replace(faded, evidence=faded.evidence.plus(new_evidence))

    def faded(self, evidence: EvidenceT, n_reports: int) -> EvidenceT:
        """Return the evidence under each half-life, discounted for ``n_reports`` further reports."""
        return evidence.scaled(0.5 ** (n_reports / np.array(self.half_lives)))

    def build_result(self, discounted: Discounted[EvidenceT]) -> HalfLives:
        """Return the half-life in use, and the probability of each."""
        lives = tuple(None if math.isinf(number) else number for number in self.half_lives)
        probabilities = tuple(round(float(number), 4) for number in discounted.probabilities) if self._chooses else None
        return HalfLives(lives[discounted.used], lives, probabilities)


def prior_probabilities(half_lives: int) -> Array:
    """Return the prior probability that each half-life predicts best; the infinite half-life is the first."""
    probabilities = np.full(half_lives, (1 - _ENDLESS_PRIOR) / max(1, half_lives - 1))
    probabilities[0] = _ENDLESS_PRIOR
    return probabilities
