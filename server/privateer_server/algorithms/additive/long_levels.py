"""Features with many unordered levels: every level has an independent term in addition to all other features.

Sums over the people of a level are taken less what all levels have in common, so that other features, which are
independent given the arm, add nothing to them. A prior of several scales lets most levels do nothing, and few a lot.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_core.algorithms.additive.spec import LONG_LEVELS
from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.forgetting import SufficientStatistics

_TERM_DEVIATIONS: Final = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
"""Standard deviations of a level's term, in expected reward where that is about 1/2."""
_PRIOR_LEVEL_COUNTS: Final = np.array([8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
"""Levels that are thought to have each scale, before any report."""
_SHARE_DEVIATIONS: Final = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
"""Standard deviations of levels' shares of people, by the even one."""
_MIN_RELATIVE_SHARE: Final = 2e-3  # the least share that is believed, by the even one
_LEVEL_DEVIATION: Final = 0.1  # about how far a level's term may be from what all have in common
_N_EM_STEPS: Final = 20
_N_BISECTIONS: Final = 50


@dataclass(frozen=True)
class LongCells:
    """The positions of long features' levels among all terms, and among the parts of all questions."""

    # terms, parts: shape (levels,): of each level of each long feature its term, and its part
    terms: Ints
    parts: Ints
    # short_terms, short_parts, short_questions: what belongs to no long feature, in order
    short_terms: Ints
    short_parts: Ints
    short_questions: Ints
    features: tuple[slice, ...]  # of each long feature its levels among those of all
    feature_indices: tuple[int, ...]  # of each long feature its place among all features

    @classmethod
    def from_questions(cls, questions: Questions) -> "LongCells":
        """Return the positions for the questions of a spec."""
        cells = questions.cells
        places = tuple(place for place, feature in enumerate(cells.features) if len(feature.codes) >= LONG_LEVELS)
        ends = np.cumsum([0, *(cells.features[place].count for place in places)]).tolist()
        numbers = [number for number, (place, _) in enumerate(questions.partitions) if place in places]
        empty = [np.zeros(0, np.int64)]
        terms = np.concatenate([*empty, *(np.arange(cells.starts[index], cells.starts[index + 1]) for index in places)])
        parts = np.concatenate([*empty, *(np.arange(questions.starts[q], questions.starts[q + 1]) for q in numbers)])
        return cls(
            terms,
            parts,
            np.setdiff1d(np.arange(cells.count), terms),
            np.setdiff1d(np.arange(int(questions.starts[-1])), parts),
            np.setdiff1d(np.arange(questions.count), numbers),
            tuple(slice(start, end) for start, end in pairwise(ends)),
            places,
        )

    def build_short_questions(self, questions: Questions) -> Questions:
        """Return the questions about no feature and about features that are not long."""
        features = questions.cells.features
        short_features = tuple(feature for index, feature in enumerate(features) if index not in self.feature_indices)
        return Questions(Cells(short_features), questions.merges)


@dataclass(frozen=True)
class LevelTerms:
    """The posterior of the terms of levels."""

    # means, variances: shape (arms, levels)
    means: Array
    variances: Array

    def predictive_log_density(self, statistics: "LevelStatistics") -> float:
        """Return the log density of observations with these statistics, as `TermPosterior.predictive_log_density`."""
        residuals = statistics.scores - statistics.information * self.means
        inner = self.variances * statistics.information
        terms = self.means * (statistics.scores + residuals) + self.variances * residuals**2 / (1 + inner)
        return float((terms - np.log1p(inner)).sum()) / 2


@dataclass(frozen=True)
class LevelStatistics(SufficientStatistics):
    """Normal evidence of the terms of independent levels, in natural parameters."""

    # information, scores: shape (arms, levels)
    information: Array
    scores: Array

    @classmethod
    def from_sums(
        cls, cells: LongCells, slopes: Array, sums: Array, variances: Array, means: Array
    ) -> "LevelStatistics":
        """Return the evidence of a round's sums of residuals; all are (arms, levels).

        slopes: by how much sums change with terms: people, times the mean of what their residuals are multiplied by.
        means: the terms that residuals were measured from.
        """
        residual_sums = sums.copy()
        for columns in cells.features:
            # Rare levels are mostly noise: in a plain sum they would add theirs to every level.
            trust = slopes[:, columns] / (variances[:, columns] + (_LEVEL_DEVIATION * slopes[:, columns]) ** 2)
            total = np.maximum((trust * slopes[:, columns]).sum(axis=1, keepdims=True), 1e-12)
            common = (trust * sums[:, columns]).sum(axis=1, keepdims=True) / total
            residual_sums[:, columns] -= common * slopes[:, columns]
        weights = slopes / variances
        information = weights * slopes
        return cls(information, weights * residual_sums + information * means)

    def estimate_terms(self, cells: LongCells, unit: float) -> LevelTerms:
        """Return the posterior of terms; ``unit`` is the scale of expected rewards, 1 for a mean of 1/2.

        The shares of scales among a feature's levels, over all arms, are estimated by EM (an adaptive prior: Stephens
        2017, False discovery rates: a new deal), from thoughts worth a few levels.
        """
        means, variances = np.zeros_like(self.information), np.zeros_like(self.information)
        for columns in cells.features:
            evidence = self.information[:, columns], self.scores[:, columns]
            means[:, columns], variances[:, columns] = _shrink(*evidence, unit * _TERM_DEVIATIONS, _PRIOR_LEVEL_COUNTS)
        return LevelTerms(means, variances)


@dataclass(frozen=True)
class LevelCounts:
    """Normal evidence of levels' shares of people, in natural parameters."""

    # counted, count_scores: shape (levels,)
    counted: Array
    count_scores: Array

    @classmethod
    def unknown(cls, levels: int) -> "LevelCounts":
        """Return the evidence before any report."""
        return cls(np.zeros(levels), np.zeros(levels))

    def with_counts(self, cells: LongCells, counts: Array, variances: Array, n_participants: int) -> "LevelCounts":
        """Return the evidence after noisy counts (levels,) of participants, with the noise ``variances`` (levels,)."""
        weights = n_participants / (variances + n_participants * self.estimate_shares(cells))
        return LevelCounts(self.counted + n_participants * weights, self.count_scores + counts * weights)

    def estimate_shares(self, cells: LongCells) -> Array:
        """Return the shares of participants (levels,), above 0 and with the sum 1 for each feature."""
        shares = np.zeros(len(self.counted))
        for columns in cells.features:
            uniform_share = 1 / (columns.stop - columns.start)
            surplus = self.count_scores[columns] - self.counted[columns] * uniform_share
            scales, prior_counts = uniform_share * _SHARE_DEVIATIONS, np.ones(len(_SHARE_DEVIATIONS))
            shift, _ = _shrink(self.counted[None, columns], surplus[None], scales, prior_counts)
            shares[columns] = _project_to_simplex(uniform_share + shift[0], _MIN_RELATIVE_SHARE * uniform_share)
        return shares


def _project_to_simplex(shares: Array, min_share: float) -> Array:
    """Return the nearest shares (levels,) that are at least ``min_share`` and have the sum 1.

    Were they cut at 0 and divided by their sum, noise of rare levels would take from the frequent ones.
    """
    low, high = shares.min() - 1.0, shares.max()
    for _ in range(_N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(shares - middle, min_share).sum() > 1 else (low, middle)
    projected = np.maximum(shares - high, min_share)
    return np.asarray(projected / projected.sum())


def _shrink(information: Array, scores: Array, scales: Array, prior_counts: Array) -> tuple[Array, Array]:
    """Return posterior means and variances (arms, levels) under a mixture of normal priors of several scales around 0.

    information, scores: shape (arms, levels).
    scales: standard deviations (scales,).
    prior_counts: prior number of levels with each scale, (scales,).
    """
    scale_variances, inner = scales**2, 1 + scales**2 * information[:, :, None]
    means_by_scale = scale_variances * scores[:, :, None] / inner
    evidence = (means_by_scale * scores[:, :, None] - np.log(inner)) / 2
    scale_probabilities = prior_counts / prior_counts.sum()
    for _ in range(_N_EM_STEPS):
        scale_probabilities = prior_counts + softmax(evidence + np.log(scale_probabilities), axis=2).sum(axis=(0, 1))
        scale_probabilities /= scale_probabilities.sum()
    responsibilities = softmax(evidence + np.log(scale_probabilities), axis=2)
    means = (responsibilities * means_by_scale).sum(axis=2)
    variances = (responsibilities * (scale_variances / inner + means_by_scale**2)).sum(axis=2) - means**2
    return means, np.maximum(variances, 0.0)
