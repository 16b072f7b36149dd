"""Shares of people who get each arm under a policy, from made-up people whose features are independent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Cells
from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_PEOPLE: Final = 256
"""People made up for each cell, each of whom takes every draw."""
_ABOVE: Final = 0.02
_FEW: Final = 32
_ARM_BITS: Final = 8
"""Bits of an arm: a sum of 65 terms of 16 bits has 22 more."""
_ARM_MASK: Final = (1 << _ARM_BITS) - 1
_NEVER: Final = -(1 << 30)
"""Score of an arm that nobody gets: below all sums of terms."""
_MANY: Final = _PEOPLE * 64
"""Features with more than 64 cells have fewer people for each, but no fewer than a few."""
_NONE: Final = 1e-9


@dataclass(frozen=True)
class ArmShares:
    """The arms of people of each cell, and how much their residuals say."""

    # shape (arms, terms): the share of people of a cell who get the arm; the first term's is that of everybody
    shares: Array
    weighted: Array  # shape (arms, terms): the same, times the mean of what their residuals are multiplied by
    # shape (arms, terms): the same as ``weighted``, times the mean of what is expected beyond what rare rewards have,
    # from which no residual is measured
    cut: Array
    spread: Array  # shape (arms,): variance of a residual over what it is multiplied by

    def at(self, terms: Ints) -> "ArmShares":
        """Return those of some terms."""
        return ArmShares(self.shares[:, terms], self.weighted[:, terms], self.cut[:, terms], self.spread)

    @classmethod
    def of(cls, policy: AdditivePolicy, masses: Array) -> "ArmShares":
        """Return those of a policy; ``masses`` (terms,) are the shares of people by cell, and 1."""
        cells, means = policy.questions.cells, policy.means.astype(np.int32)
        draws = _ranked(policy)
        terms = made_up(cells, masses)
        scores = draws[:, :1] + sum(draws[:, own] for own in terms.T)
        expected = means[:, 0] + sum(means[:, own].T for own in terms.T)
        found = [_of_people(policy, _times(scores)[None], expected[None])]
        for place, own in enumerate(terms.T):
            cell = slice(int(cells.starts[place]), int(cells.starts[place + 1]))
            some = max(_FEW, min(_PEOPLE, _MANY // (cell.stop - cell.start)))
            others, rest = scores[:, :some] - draws[:, own[:some]], (expected - means[:, own].T)[:some]
            times = np.array([_times(others + draws[:, term : term + 1]) for term in range(cell.start, cell.stop)])
            found.append(_of_people(policy, times, rest + means[:, cell].T[:, None]))
        shares, weighted, cut, spreads = (np.concatenate(some).T for some in zip(*found, strict=True))
        return cls(shares, weighted, cut, spreads[:, 0] / np.maximum(weighted[:, 0], _NONE))

    @classmethod
    def most_expected(cls, policy: AdditivePolicy, masses: Array) -> float:
        """Return what no more than `_ABOVE` of people have expected of the arm that a policy gives them."""
        terms, draws = made_up(policy.questions.cells, masses), policy.draws
        people, named = (one.ravel() for one in np.indices((len(terms), len(draws))))
        arms = policy.chosen(terms[people], named)
        return float(np.quantile(policy.expected(terms[people], arms), 1 - _ABOVE))

    @classmethod
    def mixed(cls, some: Sequence[tuple["ArmShares", float]], arms: int) -> "ArmShares":
        """Return those of people of whom each policy decided for a share.

        Arms, of which there are so many now, may have been added since: earlier policies gave them to nobody.
        """
        shares, weighted, cut = np.zeros((3, arms, some[0][0].shares.shape[1]))
        spread, having = np.zeros((2, arms))
        for one, share in some:
            own = slice(0, len(one.shares))
            shares[own] += share * one.shares
            weighted[own] += share * one.weighted
            cut[own] += share * one.cut
            spread[own] += share * one.spread
            having[own] += share
        return cls(shares, weighted, cut, spread / np.maximum(having, _NONE))


def _ranked(policy: AdditivePolicy) -> NDArray[np.int32]:
    """Return draws (arms, terms, draws) whose sums say in their last bits which arm they are of, the first one largest.

    So the largest sum of all names its arm. Arms come first: they are compared along memory.
    """
    draws = np.ascontiguousarray(policy.draws.transpose(1, 2, 0), np.int32) << _ARM_BITS
    draws[~policy.playable] = 0
    draws[~policy.playable, 0] = _NEVER
    draws[:, 0] += np.arange(len(draws), 0, -1)[:, None] - 1
    return draws


def _times(ranked: NDArray[np.int32]) -> Array:
    """Return how often each person gets each arm, (people, arms), by sums of what `_ranked` returns."""
    arms, people, draws = ranked.shape
    chosen = arms - 1 - (ranked.max(axis=0) & _ARM_MASK)
    chosen += arms * np.arange(people)[:, None]
    return np.asarray(np.bincount(chosen.ravel(), minlength=people * arms).reshape(people, arms) / draws)


def _of_people(policy: AdditivePolicy, times: Array, expected: NDArray[np.int32]) -> tuple[Array, ...]:
    """Return the share of each arm, (cells, arms), and means over people of what `ArmShares` has of those of the arm.

    times, expected (cells, people, arms): how often people get each arm, and what it is expected to give them, in
        steps.
    """
    told, means = policy.residuals, np.asarray(STEP * expected)
    weights = times * told.weights(means)
    cut, variances = weights * told.cut(means), times * told.variances(means)
    return times.mean(axis=1), weights.mean(axis=1), cut.mean(axis=1), variances.mean(axis=1)


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
