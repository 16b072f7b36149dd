"""What rounds say together where the noise of their sum is known: one observation of every arm's parameter."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Known(Protocol):
    """What was known of parameters and contexts; the names are those of a learner's state."""

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
    """What was known of parameters and contexts when noise began anew, as a learner's state has it."""

    information: Array
    scores: Array
    moments: Array
    precision: Array


@dataclass(frozen=True)
class Running:
    """Sums over the rounds since noise began anew, in which reports add up to matrices (theta - centre) and noise.

    Attributes
    ----------
    before
        What was known then.
    people
        People of these rounds.
    matrices
        Shape (arms, d, d): their slopes, times people.
    observed
        Shape (arms, d): sums of reports, less what they would be if parameters were the centre.
    spread, doubt
        Shape (arms,): variance of a coordinate of ``observed`` that comes of how people differ, and the standard
        deviation that comes of slopes, which may be off in all rounds alike.
    told
        Shape (d (d + 1) / 2,): the sum of the second moments that people told.
    """

    before: Before
    people: int
    matrices: Array
    observed: Array
    spread: Array
    doubt: Array
    told: Array

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
