"""The latest rounds, whose residuals are read again whenever more is known of contexts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.linear.policy import LinearPolicy

Array = NDArray[np.float64]
_ROUNDS: Final = 10
"""How many rounds are kept: where rounds grow by .3, those before them have a tenth of the people."""
Said: TypeAlias = tuple[Array, Array]
"""Information and scores, as a learner's state has them."""


@dataclass(frozen=True)
class Heard:
    """What a round released of residuals.

    Attributes
    ----------
    policy
        That of the round.
    sums
        Shape (classes, arms * d).
    reports
        How many.
    noise
        Variance of noise in a coordinate of ``sums``.
    """

    policy: LinearPolicy
    sums: Array
    reports: int
    noise: float


@dataclass(frozen=True)
class Recent:
    """The latest rounds, and what the others said.

    Attributes
    ----------
    information, scores
        What rounds said that are not kept.
    rounds
        Those that are, oldest first.
    """

    information: Array
    scores: Array
    rounds: tuple[Heard, ...] = ()

    def read(self, rounds: Sequence[Heard], said: Sequence[Said]) -> tuple["Recent", Said]:
        """Return which of these ``rounds`` are kept, and what all rounds say, if these said so.

        None is where nobody tells of contexts. A policy that follows others is not: they would have to be kept, too.
        """
        newest = len(rounds) - _ROUNDS
        keeps = [place >= newest and _is_kept(one.policy) for place, one in enumerate(rounds)]
        own = (self.information, self.scores)
        gone = _sum(own, [one for one, kept in zip(said, keeps, strict=True) if not kept])
        return Recent(*gone, tuple(one for one, kept in zip(rounds, keeps, strict=True) if kept)), _sum(own, said)


def _is_kept(policy: LinearPolicy) -> bool:
    return bool(policy.share) and not policy.deciders


def _sum(first: Said, others: Sequence[Said]) -> Said:
    return first[0] + sum(one for one, _ in others), first[1] + sum(one for _, one in others)
