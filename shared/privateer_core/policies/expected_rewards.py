"""The rewards that a learner expects of options, by people's contexts: what rules for whom are made from."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.conclusion import Sureness
from privateer_core.answer.shares import Shares, ShareSource

Array = NDArray[np.float64]


def summed_by(places: NDArray[np.int64], weights: Array, size: int) -> Array:
    """Return sums of weights (n, options) of those at each of so many places, (size, options)."""
    summed = np.zeros((size, weights.shape[1]))
    np.add.at(summed, places, weights)
    return summed


@dataclass(frozen=True)
class ExpectedRewards:
    """What is expected of every option, where people are, and how surely; all of it follows from releases.

    Attributes
    ----------
    lower, upper
        Shape (boxes, columns): corners of boxes of encoded contexts, in which people are spread evenly.
    shares
        Who comes: the share of the people in each, and where it is from.
    at
        Returns, of encoded contexts (n, columns), the mean rewards and their standard deviations, (n, options) each, in
        the unit of rewards. A deviation is infinite where nothing is known. Deviations leave out what all options have
        in common.
    deviation
        Returns, of encoded contexts and weights (n, options), the standard deviation of the sum of mean rewards with
        these weights, or a bound of it: weights of one person's options have a sum of 0.
    differences
        Whether means are differences from the control alone.
    draw
        Returns, of places (n, features, 2) in [0, 1], the encoded contexts (n, columns) of people as they come: even
        places have people in the shares that are known. None: people are spread evenly over the boxes.
    decided
        How far a test has decided that the option given there is the best, for each box; None where no test is made.
    """

    lower: Array
    upper: Array
    shares: Shares
    at: Callable[[Array], tuple[Array, Array]]
    deviation: Callable[[Array, Array], float]
    differences: bool = False
    decided: tuple[Sureness, ...] | None = None
    draw: Callable[[Array], Array] | None = None

    def within(self, low: float, high: float) -> "ExpectedRewards":
        """Return the same with means at the nearer bound of rewards, where noise left them beyond.

        Deviations stay: nothing is surer than it was, and no option is behind by more than rewards can be.
        """

        def at(contexts: Array) -> tuple[Array, Array]:
            means, deviations = self.at(contexts)
            return np.clip(means, low, high), deviations

        return replace(self, at=at)

    @classmethod
    def everywhere(
        cls,
        columns: int,
        at: Callable[[Array], tuple[Array, Array]],
        deviation: Callable[[Array, Array], float],
        draw: Callable[[Array], Array] | None = None,
    ) -> "ExpectedRewards":
        """Return what is expected where nothing is known of who comes, or nothing but what ``draw`` knows."""
        corners = np.zeros((1, columns)), np.ones((1, columns))
        source = ShareSource.ASSUMED if draw is None else ShareSource.COUNTED
        return cls(*corners, Shares.fixed(np.ones(1), source), at, deviation, draw=draw)
