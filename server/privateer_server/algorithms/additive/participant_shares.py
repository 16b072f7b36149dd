"""Shares of participants in each cell, learned from noisy counts, and of those who get each arm under a policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.algorithms.additive.policy import TERM_UNIT, AdditivePolicy
from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.additive.posterior import build_kernels

_N_SIMULATED: Final = 256  # people made up for each cell, each of whom takes every draw
_MAX_EXCEEDING_SHARE: Final = 0.02
_MIN_SIMULATED: Final = 32
_ARM_BITS: Final = 8  # bits of an arm: a sum of 65 terms of 16 bits has 22 more
_ARM_MASK: Final = (1 << _ARM_BITS) - 1
_UNPLAYABLE_SCORE: Final = -(1 << 30)  # score of an arm that nobody gets: below all sums of terms
_MAX_SIMULATED: Final = _N_SIMULATED * 64
"""Features with more than 64 cells have fewer people for each, but no fewer than a few."""
_MIN_DIVISOR: Final = 1e-9


@dataclass(frozen=True)
class ArmShares:
    """The shares of arms among the participants of each cell, and the weights of their residuals."""

    # shape (arms, terms): the share of people of a cell who get the arm; the first term's is that of everybody
    shares: Array
    weighted: Array  # shape (arms, terms): the same, times the mean of what their residuals are multiplied by
    # shape (arms, terms): the same as ``weighted``, times the mean of what is expected beyond what rare rewards have,
    # from which no residual is measured
    cut: Array
    spread: Array  # shape (arms,): variance of a residual over what it is multiplied by

    def select_terms(self, terms: Ints) -> "ArmShares":
        """Return the shares of the selected terms."""
        return ArmShares(self.shares[:, terms], self.weighted[:, terms], self.cut[:, terms], self.spread)

    @classmethod
    def from_policy(cls, policy: AdditivePolicy, masses: Array) -> "ArmShares":
        """Return the shares under a policy; ``masses`` (terms,) are the shares of participants by cell, and 1."""
        cells, means = policy.questions.cells, policy.means.astype(np.int32)
        draws = _rank_draws(policy)
        terms = simulate_terms(cells, masses)
        scores = draws[:, :1] + sum(draws[:, feature_terms] for feature_terms in terms.T)
        expected = means[:, 0] + sum(means[:, feature_terms].T for feature_terms in terms.T)
        statistics = [_average_over_people(policy, _arm_frequencies(scores)[None], expected[None])]
        for index, feature_terms in enumerate(terms.T):
            cell_terms = slice(int(cells.starts[index]), int(cells.starts[index + 1]))
            n_simulated = max(_MIN_SIMULATED, min(_N_SIMULATED, _MAX_SIMULATED // (cell_terms.stop - cell_terms.start)))
            other_scores = scores[:, :n_simulated] - draws[:, feature_terms[:n_simulated]]
            other_means = (expected - means[:, feature_terms].T)[:n_simulated]
            # Neighbouring cells that are learned as one have the same terms, and one is worked out for all.
            terms_of_cells = np.concatenate([draws[:, cell_terms], means[:, cell_terms, None]], axis=2)
            is_new = np.append(True, (np.diff(terms_of_cells, axis=1) != 0).any(axis=(0, 2)))
            distinct = cell_terms.start + np.flatnonzero(is_new)
            frequencies = np.array([_arm_frequencies(other_scores + draws[:, [term]]) for term in distinct.tolist()])
            averages = _average_over_people(policy, frequencies, other_means + means[:, distinct].T[:, None])
            statistics.append(tuple(average[np.cumsum(is_new) - 1] for average in averages))
        shares, weighted, cut, spreads = (np.concatenate(columns).T for columns in zip(*statistics, strict=True))
        return cls(shares, weighted, cut, spreads[:, 0] / np.maximum(weighted[:, 0], _MIN_DIVISOR))

    @classmethod
    def from_deciders(cls, policy: AdditivePolicy, masses: Array) -> "ArmShares":
        """Return the shares among a round's participants, whose arms may be by earlier policies than the round's."""
        decided = [(cls.from_policy(decider, masses), share) for decider, share in policy.weighted_deciders]
        return cls.mix(decided, len(policy.means))

    @classmethod
    def upper_expected_reward(cls, policy: AdditivePolicy, masses: Array) -> float:
        """Return the 98 % quantile, over participants, of the reward that they are expected to get from their arm."""
        terms, draws = simulate_terms(policy.questions.cells, masses), policy.draws
        participants, draw_numbers = (indices.ravel() for indices in np.indices((len(terms), len(draws))))
        arms = policy.choose_arms(terms[participants], draw_numbers)
        return float(np.quantile(policy.predict(terms[participants], arms), 1 - _MAX_EXCEEDING_SHARE))

    @classmethod
    def mix(cls, weighted_shares: Sequence[tuple["ArmShares", float]], n_arms: int) -> "ArmShares":
        """Return the average of the shares of several policies, weighted by the share of participants each decided for.

        ``n_arms`` is the number of arms now: earlier policies gave to nobody those that were added since.
        """
        shares, weighted, cut = np.zeros((3, n_arms, weighted_shares[0][0].shares.shape[1]))
        spread, arm_weights = np.zeros((2, n_arms))
        for arm_shares, share in weighted_shares:
            known_arms = slice(0, len(arm_shares.shares))
            shares[known_arms] += share * arm_shares.shares
            weighted[known_arms] += share * arm_shares.weighted
            cut[known_arms] += share * arm_shares.cut
            spread[known_arms] += share * arm_shares.spread
            arm_weights[known_arms] += share
        return cls(shares, weighted, cut, spread / np.maximum(arm_weights, _MIN_DIVISOR))


def _rank_draws(policy: AdditivePolicy) -> NDArray[np.int32]:
    """Return draws (arms, terms, draws) whose sums encode the arm in their lowest bits; the first arm wins ties.

    So the largest sum of all names its arm. Arms come first: they are compared along memory.
    """
    draws = np.ascontiguousarray(policy.draws.transpose(1, 2, 0), np.int32) << _ARM_BITS
    draws[~policy.playable] = 0
    draws[~policy.playable, 0] = _UNPLAYABLE_SCORE
    draws[:, 0] += np.arange(len(draws), 0, -1)[:, None] - 1
    return draws


def _arm_frequencies(ranked: NDArray[np.int32]) -> Array:
    """Return how often each participant gets each arm, (people, arms), from sums of the draws of `_rank_draws`."""
    arms, n_people, draws = ranked.shape
    chosen = arms - 1 - (ranked.max(axis=0) & _ARM_MASK)
    chosen += arms * np.arange(n_people)[:, None]
    return np.asarray(np.bincount(chosen.ravel(), minlength=n_people * arms).reshape(n_people, arms) / draws)


def _average_over_people(policy: AdditivePolicy, frequencies: Array, expected: NDArray[np.int32]) -> tuple[Array, ...]:
    """Return shares and averages as in `ArmShares`, (cells, arms) each, from arrays (cells, people, arms)."""
    residuals, means = policy.residuals, np.asarray(TERM_UNIT * expected)
    weights = frequencies * residuals.weights(means)
    cut, variances = weights * residuals.clipped_excess(means), frequencies * residuals.variances(means)
    return frequencies.mean(axis=1), weights.mean(axis=1), cut.mean(axis=1), variances.mean(axis=1)


def simulate_terms(cells: Cells, masses: Array) -> Ints:
    """Return the terms (people, features) of simulated participants, in a random order for each feature."""
    rng = np.random.default_rng(0)
    middles = (np.arange(_N_SIMULATED) + 0.5) / _N_SIMULATED
    term_columns = []
    for index in range(len(cells.features)):
        columns = cells.feature_slice(index)
        ends = np.cumsum(masses[columns])
        drawn_cells = np.searchsorted(ends / ends[-1], middles)
        term_columns.append(columns.start + rng.permutation(drawn_cells))
    return np.stack(term_columns, axis=1)


_MISSING_SHARE: Final = 0.1  # assumed share of people without a number, where there may be some
_RELATIVE_DEVIATIONS: Final = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
"""Standard deviations tried for shares, by the even one."""
_RIDGE: Final = 1e-6
_MIN_RELATIVE_SHARE: Final = 2e-3  # the least share that is believed, by the even one
_CACHE_SIZE: Final = 512  # features whose priors are kept: those of several experiments


@dataclass(frozen=True)
class CellMasses:
    """Normal evidence of the shares of people by cell, in natural parameters."""

    information: Array  # shape (terms, terms); 0 between cells of different features
    scores: Array  # shape (terms,)

    @classmethod
    def unknown(cls, cells: Cells) -> "CellMasses":
        """Return the evidence before any report."""
        return cls(np.zeros((cells.count, cells.count)), np.zeros(cells.count))

    def add_counts(
        self, questions: Questions, cell_shares: Array, counts: Array, variances: Array, n_participants: int
    ) -> "CellMasses":
        """Return the evidence after noisy counts (parts,), by their variances and the shares (terms,) before them."""
        matrix = questions.incidence_matrix * (np.arange(questions.cells.count) > 0)
        expected = n_participants * np.clip(matrix @ cell_shares, 1e-6, 1.0)
        weighted_matrix = matrix.T / (variances + expected)
        added_information = n_participants**2 * weighted_matrix @ matrix
        return CellMasses(self.information + added_information, self.scores + n_participants * weighted_matrix @ counts)

    def means(self, cells: Cells) -> Array:
        """Return the shares (terms,), which are above 0 and have the sum 1 for each feature; the first is 1."""
        shares = np.ones(cells.count)
        for index, feature in enumerate(cells.features):
            columns = cells.feature_slice(index)
            shares[columns] = _estimate_shares(feature, self.information[columns, columns], self.scores[columns])
        return shares


def _estimate_shares(feature: ShapeCells, information: Array, scores: Array) -> Array:
    """Return the mean of one feature's shares over priors of several scales and lengths, by their evidence.

    With R a root of a prior at scale 1, and U and d the vectors and values of R^T J R, the mean at scale s is
    s^2 R U (1 + s^2 d)^-1 U^T R^T h: one decomposition tells of all scales.
    """
    even, roots = _prior(feature)
    surplus, scale_variances = scores - information @ even, _RELATIVE_DEVIATIONS[:, None] ** 2
    values, vectors = np.linalg.eigh(roots.transpose(0, 2, 1) @ information @ roots)
    rotated = roots @ vectors
    projections, denominators = surplus @ rotated, 1 + scale_variances * np.maximum(values, 0.0)[:, None]
    shifts = scale_variances * projections[:, None] / denominators
    evidence = (shifts @ projections[:, :, None])[:, :, 0] - np.log(denominators).sum(axis=2)
    weights = softmax(evidence / 2)
    shift = (weights[:, None] @ shifts @ rotated.transpose(0, 2, 1)).sum(axis=(0, 1))
    shares = np.maximum(even + shift, _MIN_RELATIVE_SHARE * even)
    return np.asarray(shares / shares.sum())


@lru_cache(_CACHE_SIZE)
def _prior(feature: ShapeCells) -> tuple[Array, Array]:
    """Return mean shares (cells,) before any report, and roots (lengths, cells, cells) of covariances at scale 1."""
    even = np.full(feature.count, 1 / feature.count)
    if feature.missing:
        even = np.append(np.full(feature.bins, (1 - _MISSING_SHARE) / feature.bins), _MISSING_SHARE)
    centre = np.eye(feature.count) - even[:, None]
    kernels = centre @ (even[:, None] * build_kernels(feature) * even) @ centre.T
    return even, np.linalg.cholesky(kernels + _RIDGE * np.diag(even**2))
