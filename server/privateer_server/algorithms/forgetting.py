"""Forgetting: sums under several half-lives in parallel, which of them predicts best, and what is always tried."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Generic, Self, TypeVar

import numpy as np

from privateer_core.answer.parts import HalfLives
from privateer_core.arrays import Array

_ENDLESS_PRIOR: Final = 0.7  # probability beforehand that nothing moves; the other half-lives share the rest
_MERIT_HALF_LIFE: Final = 20_000.0
"""People after whom half of what is known of the half-lives' merits is forgotten: it may be another's turn."""
_SWITCH_ODDS: Final = 2.0  # another half-life takes over when it is this many times as probable
_RECOMPUTE_SHARE: Final = 0.1  # posteriors are computed again when people make up this share of the shortest half-life
_TRIAL_SHARE: Final = 0.01
"""Share of people who try the arm that is remembered least: what nobody plays tells no rise."""
_MIN_TRIAL_PEOPLE: Final = 100  # of one round, where its noise is the same for every share of people


class SufficientStatistics:
    """Sums over reports, which fade: a frozen dataclass of arrays by arm, and of other such sums."""

    arm_axis: ClassVar[int] = -1  # the axis of arms, after one of half-lives in front

    def map_arrays(self, change: Callable[..., Array], *others: Self) -> Self:
        """Apply a function to each array, with the arrays of other statistics as further arguments."""
        changed = []
        for name, values in vars(self).items():
            arguments = [getattr(other, name) for other in others]
            is_nested = isinstance(values, SufficientStatistics)
            changed.append(
                values.map_arrays(change, *arguments) if is_nested else np.asarray(change(values, *arguments))
            )
        return type(self)(*changed)

    def select(self, index: int) -> Self:
        """Return one entry of the first axis."""
        return self.map_arrays(lambda values: values[index])

    def scaled_by(self, shares: float | Array) -> Self:
        """Return the sums multiplied by a share, or each entry of the first axis by its own."""
        return self.map_arrays(lambda values: (values.T * shares).T)

    def plus(self, other: Self) -> Self:
        """Return the sums with those of other reports."""
        return self.map_arrays(np.add, other)

    def with_arms(self, n_added: int) -> Self:
        """Return the sums with additional arms at the end, without reports."""
        return self.map_arrays(lambda values: pad_axis(values, self.arm_axis, n_added))


def pad_axis(values: Array, axis: int, n_added: int) -> Array:
    """Return an array padded with zeros at the end of an axis."""
    widths = np.zeros((values.ndim, 2), np.int64)
    widths[axis, 1] = n_added
    return np.pad(values, widths)


StatisticsT = TypeVar("StatisticsT", bound=SufficientStatistics)


@dataclass(frozen=True)
class Discounted(Generic[StatisticsT]):
    """Discounted evidence under each half-life. All learn from every round."""

    evidence: StatisticsT  # sums with an axis of half-lives in front
    probabilities: Array  # shape (half-lives,): how probable it is that each predicts best
    used: int  # the half-life whose evidence makes policies
    n_own_reports: int  # the experiment's own people who had reported when it was last brought up to date

    @property
    def current(self) -> StatisticsT:
        """The evidence under the half-life in use."""
        return self.evidence.select(self.used)

    @property
    def endless(self) -> StatisticsT:
        """The evidence that has not faded."""
        return self.evidence.select(0)

    def choose_half_life(self, scores: Array, n_reports: int) -> "Discounted[StatisticsT]":
        """Return the evidence with updated probabilities of half-lives, after their log predictive densities."""
        retention = 0.5 ** (n_reports / _MERIT_HALF_LIFE)
        merits = retention * self.probabilities + (1 - retention) * prior_probabilities(len(scores))
        merits = merits * np.exp(scores - np.max(scores))
        merits = np.maximum(merits / merits.sum(), 1e-12)
        best = int(np.argmax(merits))
        used = best if merits[best] > _SWITCH_ODDS * merits[self.used] else self.used
        return replace(self, probabilities=merits, used=used)

    def with_arms(self, n_added: int) -> "Discounted[StatisticsT]":
        """Return the evidence with additional arms without reports."""
        return replace(self, evidence=self.evidence.with_arms(n_added))


class ForgettingRule:
    """The rule by which evidence is discounted.

    half_lives: people after whose reports evidence counts half, the endless one first; empty: nothing fades.
    chooses: whether the half-life that predicts best is used; else the last one is.
    """

    def __init__(self, half_lives: tuple[float, ...], *, chooses: bool) -> None:
        self.half_lives, self.chooses = half_lives, chooses

    def start(self, evidence: StatisticsT) -> Discounted[StatisticsT]:
        """Return the evidence, before any report, under each half-life."""
        n_lives = len(self.half_lives)
        used = 0 if self.chooses else n_lives - 1
        copies = evidence.map_arrays(lambda values: np.stack([values] * n_lives))
        return Discounted(copies, prior_probabilities(n_lives), used, 0)

    def restart(self, discounted: Discounted[StatisticsT] | None) -> Discounted[StatisticsT] | None:
        """Return the evidence before any report of another experiment; refuse what is not of these half-lives."""
        n_lives = len(self.half_lives)
        if not n_lives:
            return None
        probabilities = np.zeros(0) if discounted is None else discounted.probabilities
        has_half_lives = probabilities.shape == (n_lives,) and (probabilities >= 0).all()
        has_half_lives = has_half_lives and 0 < probabilities.sum() < math.inf
        if discounted is None or not has_half_lives or not 0 <= discounted.used < n_lives:
            raise ValueError("the evidence has other half-lives")

        def check_sums(values: Array) -> Array:
            if len(values) != n_lives or not np.isfinite(values).all():
                raise ValueError("the evidence has other half-lives, or is not finite")
            return values

        return replace(discounted, evidence=discounted.evidence.map_arrays(check_sums), n_own_reports=0)

    def half_life(self, discounted: Discounted[StatisticsT] | None) -> float:
        """Return the half-life of evidence, in participants."""
        return self.half_lives[discounted.used] if discounted else math.inf

    def is_due(self, n_reports: int) -> bool:
        """Whether evidence has been discounted enough since the last update to compute posteriors again."""
        return bool(self.half_lives) and n_reports >= _RECOMPUTE_SHARE * min(self.half_lives)

    def add_evidence(
        self,
        discounted: Discounted[StatisticsT],
        new_evidence: StatisticsT,
        n_own_reports: int,
        score: Callable[[StatisticsT, float, StatisticsT], float],
    ) -> Discounted[StatisticsT]:
        """Return discounted evidence with new evidence, and probabilities of half-lives by their predictions of it.

        n_own_reports: reports of the experiment's own participants, with those of the new evidence.
        score: logarithm of the density that evidence, of such a half-life, predicted for what came.
        """
        faded = self.fade(discounted, n_own_reports)
        if self.chooses:
            faded = self.choose_half_life(faded, new_evidence, n_own_reports - discounted.n_own_reports, score)
        return replace(faded, evidence=faded.evidence.plus(new_evidence))

    def fade(self, discounted: Discounted[StatisticsT], n_own_reports: int) -> Discounted[StatisticsT]:
        """Return the evidence discounted for the reports of the experiment's own people since it was last faded."""
        evidence = discounted.evidence.scaled_by(self.retention(n_own_reports - discounted.n_own_reports))
        return replace(discounted, evidence=evidence, n_own_reports=n_own_reports)

    def retention(self, n_reports: float) -> Array:
        """Return the share of evidence that each half-life, (half-lives,), retains after so many further reports."""
        return np.asarray(0.5 ** (n_reports / np.array(self.half_lives)))

    def choose_half_life(
        self,
        faded: Discounted[StatisticsT],
        new_evidence: StatisticsT,
        n_reports: int,
        score: Callable[[StatisticsT, float, StatisticsT], float],
    ) -> Discounted[StatisticsT]:
        """Return evidence that has faded with probabilities of half-lives by their predictions of what came.

        Parameters are those of `add_evidence`.
        """
        lives = enumerate(self.half_lives)
        scores = [score(faded.evidence.select(index), life, new_evidence) for index, life in lives]
        return faded.choose_half_life(np.array(scores), n_reports)

    def build_result(self, discounted: Discounted[StatisticsT]) -> HalfLives:
        """Return the half-life in use, and the probability of each."""
        lives = tuple(None if math.isinf(number) else number for number in self.half_lives)
        probabilities = tuple(round(float(number), 4) for number in discounted.probabilities) if self.chooses else None
        return HalfLives(lives[discounted.used], lives, probabilities)


def prior_probabilities(half_lives: int) -> Array:
    """Return the prior probability that each half-life predicts best; the infinite half-life is the first."""
    probabilities = np.full(half_lives, (1 - _ENDLESS_PRIOR) / max(1, half_lives - 1))
    probabilities[0] = _ENDLESS_PRIOR if half_lives > 1 else 1.0
    return probabilities


def compute_trial_share(round_number: int, batch_size: int, *, has_equal_noise: bool, min_period: int = 1) -> float:
    """Return the share of a round's people who try the arm that is remembered least; 0 if a later round has them.

    has_equal_noise: whether noise is the same for every share of people, so that small shares tell little.
    min_period: every how many rounds an arm is tried at most.
    """
    period = math.ceil(_MIN_TRIAL_PEOPLE / (_TRIAL_SHARE * batch_size)) if has_equal_noise else 1
    n_rounds = max(min_period, min(period, round(1 / _TRIAL_SHARE)))
    return 0.0 if round_number % n_rounds else n_rounds * _TRIAL_SHARE
