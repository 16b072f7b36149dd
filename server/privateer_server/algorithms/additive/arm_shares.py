"""Shares of people who get each arm under a policy, from made-up people whose features are independent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells
from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy, residual_weights

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_PEOPLE: Final = 256
"""People made up for each cell, each of whom takes every draw."""
_FEW: Final = 32
_MANY: Final = _PEOPLE * 64
"""Features with more than 64 cells have fewer people for each, but no fewer than a few."""
_NONE: Final = 1e-9


@dataclass(frozen=True)
class ArmShares:
    """The arms of people of each cell, and how much their residuals say.

    Attributes
    ----------
    shares
        Shape (arms, terms): the share of people of a cell who get the arm; the first term's is that of everybody.
    weighted
        Shape (arms, terms): the same, times the mean of what their residuals are multiplied by.
    spread
        Shape (arms,): variance of a residual over what it is multiplied by.
    """

    shares: Array
    weighted: Array
    spread: Array

    def at(self, terms: Ints) -> "ArmShares":
        """Return those of some terms."""
        return ArmShares(self.shares[:, terms], self.weighted[:, terms], self.spread)

    @classmethod
    def of(cls, policy: AdditivePolicy, masses: Array) -> "ArmShares":
        """Return those of a policy; ``masses`` (terms,) are the shares of people by cell, and 1."""
        cells, draws = policy.questions.cells, policy.draws.astype(np.int32)
        terms = made_up(cells, masses)
        means = policy.means.astype(np.int32)
        scores = draws[:, :, 0] + sum(np.moveaxis(draws[:, :, own], 2, 0) for own in terms.T)
        expected = means[:, 0] + sum(means[:, own].T for own in terms.T)
        found = [_of_people(policy, scores, expected)]
        for place, own in enumerate(terms.T):
            others, rest = scores - np.moveaxis(draws[:, :, own], 2, 0), expected - means[:, own].T
            cell = range(cells.starts[place], cells.starts[place + 1])
            some = max(_FEW, min(_PEOPLE, _MANY // len(cell)))
            others, rest = others[:some], rest[:some]
            found += [_of_people(policy, others + draws[:, :, term], rest + means[:, term]) for term in cell]
        shares, weighted, spreads = (np.array(some).T for some in zip(*found, strict=True))
        return cls(shares, weighted, spreads[:, 0] / np.maximum(weighted[:, 0], _NONE))

    @classmethod
    def mixed(cls, some: Sequence[tuple["ArmShares", float]], arms: int) -> "ArmShares":
        """Return those of people of whom each policy decided for a share.

        Arms, of which there are so many now, may have been added since: earlier policies gave them to nobody.
        """
        shares, weighted = np.zeros((2, arms, some[0][0].shares.shape[1]))
        spread, having = np.zeros((2, arms))
        for one, share in some:
            own = slice(0, len(one.shares))
            shares[own] += share * one.shares
            weighted[own] += share * one.weighted
            spread[own] += share * one.spread
            having[own] += share
        return cls(shares, weighted, spread / np.maximum(having, _NONE))


def _of_people(policy: AdditivePolicy, scores: NDArray[np.int32], expected: NDArray[np.int32]) -> tuple[Array, ...]:
    """Return the share of each arm, (arms,), and sums over its people of weights and variances of residuals."""
    people, draws, arms = scores.shape
    if not policy.playable.all():
        scores = np.where(policy.playable, scores, np.iinfo(np.int32).min)
    chosen = scores.argmax(axis=2) + arms * np.arange(people)[:, None]
    times = np.bincount(chosen.ravel(), minlength=people * arms).reshape(people, arms) / draws
    weights, variances = residual_weights(np.asarray(STEP * expected))
    return times.mean(axis=0), (times * weights).mean(axis=0), (times * variances).mean(axis=0)


def made_up(cells: Cells, masses: Array) -> Ints:
    """Return the terms (people, features) of people made up: each feature has its shares, in an order of its own."""
    rng = np.random.default_rng(0)
    middles = (np.arange(_PEOPLE) + 0.5) / _PEOPLE
    columns = []
    for place in range(len(cells.features)):
        own = cells.of_feature(place)
        ends = np.cumsum(masses[own])
        found = np.searchsorted(ends / ends[-1], middles)
        columns.append(own.start + rng.permutation(found))
    return np.stack(columns, axis=1)
