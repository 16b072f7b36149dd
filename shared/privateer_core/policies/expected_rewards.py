"""The rewards of options that a learner expects by context, from which rules are derived."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privateer_core.answer.conclusion import ConfidenceLabel
from privateer_core.answer.share_source import ShareSource
from privateer_core.answer.shares import Shares
from privateer_core.arrays import Array, Ints


def sum_by_group(groups: Ints, weights: Array, n_groups: int) -> Array:
    """Return the sums of weights (n, options) by group, (size, options)."""
    sums = np.zeros((n_groups, weights.shape[1]))
    np.add.at(sums, groups, weights)
    return sums


@dataclass(frozen=True)
class ExpectedRewards:
    """Expected rewards of options by context, with standard deviations; all computed from releases."""

    # lower, upper: corners (boxes, columns) of boxes of encoded contexts, in each of which participants are uniform
    lower: Array
    upper: Array
    shares: Shares  # the share of participants in each box, and its source
    # returns, for encoded contexts (n, columns), the mean rewards and their standard deviations, (n, options) each, in
    # the unit of rewards. A deviation is infinite if nothing is known, and excludes what all options have in common.
    at: Callable[[Array], tuple[Array, Array]]
    # returns, for encoded contexts and weights (n, options), the standard deviation of the weighted sum of mean
    # rewards, or an upper bound: the weights of a participant's options have a sum of 0
    deviation: Callable[[Array, Array], float]
    differences: bool = False  # whether means are differences from the control alone
    decided: tuple[ConfidenceLabel, ...] | None = (
        None  # decisions of a test about the option of each box; None: no test
    )
    # returns, for uniform numbers (n, features, 2) in [0, 1], the encoded contexts (n, columns) of participants in the
    # known proportions. None: participants are uniform in each box.
    draw: Callable[[Array], Array] | None = None

    def within(self, low: float, high: float) -> "ExpectedRewards":
        """Return the expected rewards with means clipped to the bounds of rewards.

        Deviations are unchanged: clipping makes no mean more certain.
        """

        def at(contexts: Array) -> tuple[Array, Array]:
            means, deviations = self.at(contexts)
            return np.clip(means, low, high), deviations

        return replace(self, at=at)

    @classmethod
    def from_single_box(
        cls,
        columns: int,
        at: Callable[[Array], tuple[Array, Array]],
        deviation: Callable[[Array, Array], float],
        draw: Callable[[Array], Array] | None = None,
    ) -> "ExpectedRewards":
        """Return expected rewards in a single box of all contexts, with the distribution of ``draw``, if given."""
        corners = np.zeros((1, columns)), np.ones((1, columns))
        source = ShareSource.ASSUMED if draw is None else ShareSource.COUNTED
        return cls(*corners, Shares.fixed(np.ones(1), source), at, deviation, draw=draw)
