"""The posterior of arms' mean rewards under a prior whose spread is fitted to them: many close arms tell of each other.

Symbols: y_k is an arm's estimate and s_k^2 its variance; arms are normal around mu with standard deviation tau.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, softmax

Array = NDArray[np.float64]
_SPREADS: Final = np.geomspace(0.01, 0.5, 12)
"""Standard deviations tried for what arms differ by, in parts of the rewards' range; all as likely."""


@dataclass(frozen=True)
class FittedPosterior:
    """A mixture of normal posteriors, one for each hypothesis of how arms differ (Efron and Morris 1975).

    A hypothesis is a spread tau, and whether the leader is one of the arms that it is about or apart from them, with a
    flat prior of its own on [0, 1]: the spread of nine alike arms and a far better one would be that of none of them.
    mu has a flat prior.
    """

    weights: Array  # shape (hypotheses,): their probabilities
    # common, doubt: shape (hypotheses,): the mean of mu, and its variance
    common: Array
    doubt: Array
    pulls: Array  # shape (hypotheses, arms): the part that mu has in an arm's mean, from 0 to 1
    # means, variances: shape (hypotheses, arms): of the arms, if mu is ``common``
    means: Array
    variances: Array

    @classmethod
    def of(cls, estimates: Array, variances: Array, playable: NDArray[np.bool_]) -> Self:
        """Return the posterior by what is known of arms (arms,), at least two of which are ``playable``.

        With w_k = 1 / (s_k^2 + tau^2) the evidence of a hypothesis is the product over its arms of
        sqrt(w_k / 2 pi) exp(-w_k (y_k - mu)^2 / 2), integrated over mu. The leader's alone is 1, when it is apart.

        estimates, variances: y_k and s_k^2; those of arms that are not playable do not matter, and may be infinite.
        """
        squares = np.tile(_SPREADS**2, 2)[:, None]
        members = np.tile(playable, (len(squares), 1))
        members[len(_SPREADS) :, int(np.argmax(np.where(playable, estimates, -np.inf)))] = False
        own = np.where(playable, variances, 1.0)
        weights = np.where(members, 1 / (own + squares), 0.0)
        total = weights.sum(axis=1)
        common = weights @ np.where(playable, estimates, 0.0) / total
        away = np.where(playable, estimates, 0.0) - common[:, None]
        logs = np.log(np.where(members, weights / (2 * np.pi), 1.0)).sum(axis=1) - np.log(total / (2 * np.pi))
        evidence = (logs - (weights * away**2).sum(axis=1)) / 2
        pulls = np.where(members, own / (own + squares), 0.0)
        means = common[:, None] + (1 - pulls) * away
        return cls(softmax(evidence), common, 1 / total, pulls, means, np.where(members, pulls * squares, own))

    @property
    def expected(self) -> Array:
        """Mean rewards (arms,), over all hypotheses."""
        return np.asarray(self.weights @ self.means)

    @property
    def deviations(self) -> Array:
        """Standard deviations of mean rewards (arms,), over all hypotheses."""
        squares = self.weights @ (self.variances + self.pulls**2 * self.doubt[:, None] + self.means**2)
        return np.asarray(np.sqrt(np.maximum(squares - self.expected**2, 0.0)))

    def gains(self, leader: int) -> Array:
        """Return, for each arm (arms,), the expectation of what it has above a leader, if that is positive.

        The leader and the other arm are taken for independent, whatever both have of mu's error.
        """
        spreads = self.variances + self.pulls**2 * self.doubt[:, None]
        gaps = self.means[:, [leader]] - self.means
        return np.asarray(self.weights @ gains_above(gaps, np.sqrt(spreads + spreads[:, [leader]])))

    def draws(self, count: int, rng: np.random.Generator) -> Array:
        """Draw all arms' mean rewards so many times, (count, arms): a hypothesis, its mu, and arms around that."""
        chosen = rng.choice(len(self.weights), size=count, p=self.weights)
        moved = np.sqrt(self.doubt[chosen]) * rng.standard_normal(count)
        own = np.sqrt(self.variances[chosen]) * rng.standard_normal((count, self.means.shape[1]))
        return np.asarray(self.means[chosen] + self.pulls[chosen] * moved[:, None] + own)


def gains_above(gaps: Array, spreads: Array) -> Array:
    """Return the expectation of the positive part of normal variables of mean -``gaps``, with standard deviations."""
    far = gaps / spreads
    return np.asarray(spreads * np.exp(-(far**2) / 2) / np.sqrt(2 * np.pi) - gaps * ndtr(-far))
