"""Statistics of earlier rounds: the latest ones, which are read again, and sums since noise began anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.linear.policy import LinearPolicy

Array = NDArray[np.float64]
_ROUNDS: Final = 10
"""How many rounds are kept: where rounds grow by .3, those before them have a tenth of the people."""
Statistics: TypeAlias = tuple[Array, Array]
"""Information and scores, as a learner's state has them."""


@dataclass(frozen=True)
class RoundResiduals:
    """The released residuals of a round."""

    policy: LinearPolicy  # that of the round
    sums: Array  # shape (classes, arms * d)
    reports: int  # how many
    noise: float  # variance of noise in a coordinate of ``sums``


@dataclass(frozen=True)
class Recent:
    """The latest rounds, and the statistics of all others."""

    # information, scores: those of rounds that are not kept
    information: Array
    scores: Array
    rounds: tuple[RoundResiduals, ...] = ()  # those that are, oldest first

    def read(self, rounds: Sequence[RoundResiduals], statistics: Sequence[Statistics]) -> tuple["Recent", Statistics]:
        """Return which of these ``rounds`` are kept, and the statistics of all rounds, if these have such ones.

        No round is kept whose people report no contexts, nor one that other policies decided: they would be kept, too.
        """
        newest = len(rounds) - _ROUNDS
        keeps = [place >= newest and _is_kept(one.policy) for place, one in enumerate(rounds)]
        own = (self.information, self.scores)
        gone = _sum(own, [one for one, kept in zip(statistics, keeps, strict=True) if not kept])
        return Recent(*gone, tuple(one for one, kept in zip(rounds, keeps, strict=True) if kept)), _sum(own, statistics)


def _is_kept(policy: LinearPolicy) -> bool:
    return bool(policy.share) and not policy.deciders


def _sum(first: Statistics, others: Sequence[Statistics]) -> Statistics:
    return first[0] + sum(one for one, _ in others), first[1] + sum(one for _, one in others)


class Known(Protocol):
    """An object with the statistics of parameters and contexts, as a learner's state is."""

    @property
    def information(self) -> Array: ...  # noqa: D102
    @property
    def scores(self) -> Array: ...  # noqa: D102
    @property
    def moments(self) -> Array: ...  # noqa: D102
    @property
    def precision(self) -> Array: ...  # noqa: D102


@dataclass(frozen=True)
class Before:
    """The statistics of parameters and contexts when noise began anew."""

    information: Array
    scores: Array
    moments: Array
    precision: Array


@dataclass(frozen=True)
class Running:
    """Sums over the rounds since noise began anew, in which reports add up to matrices (theta - centre) and noise."""

    before: Before  # what was known then
    people: int  # people of these rounds
    matrices: Array  # shape (arms, d, d): their slopes, times people
    observed: Array  # shape (arms, d): sums of reports, less what they would be if parameters were the centre
    # spread, doubt: shape (arms,): variance of a coordinate of ``observed`` that comes of how people differ, and the
    # standard deviation that comes of slopes, which may be off in all rounds alike
    spread: Array
    doubt: Array
    context_sums: Array  # shape (d (d + 1) / 2,): the sum of the second moments of people's contexts

    @classmethod
    def begun(cls, known: Known) -> "Running":
        """Return the sums of no rounds."""
        arms, d = known.scores.shape
        before = Before(known.information, known.scores, known.moments, known.precision)
        none, pairs = np.zeros(arms), np.zeros(d * (d + 1) // 2)
        return cls(before, 0, np.zeros((arms, d, d)), np.zeros((arms, d)), none, none, pairs)

    def evidence(self, noise: float) -> tuple[Array, Array]:
        """Return information and scores; ``noise`` is the variance of noise in a coordinate of ``observed``."""
        precision = 1 / (noise + self.spread + self.doubt**2)
        information = np.einsum("k,kij,kil->kjl", precision, self.matrices, self.matrices)
        scores = np.einsum("k,kij,ki->kj", precision, self.matrices, self.observed)
        return self.before.information + information, self.before.scores + scores
