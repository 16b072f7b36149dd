"""Features of many levels without an order: every level's term stands for itself, beside those of all other features.

Sums over the people of a level are taken less what all levels have in common, so that other features, which are
independent given the arm, add nothing to them. A prior of several scales lets most levels do nothing, and few a lot.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_core.algorithms.additive.spec import LONG_FROM

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_SCALES: Final = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
"""Standard deviations of a level's term, in expected reward where that is about 1/2."""
_BEFORE: Final = np.array([8.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
"""Levels that are thought to have each scale, before any report."""
_SHARES: Final = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
"""Standard deviations of levels' shares of people, by the even one."""
_LEAST: Final = 2e-3
"""The least share that is believed, by the even one."""
_UNLIKE: Final = 0.1
"""About how far a level's term may be from what all have in common."""
_STEPS: Final = 20
_HALVINGS: Final = 50


@dataclass(frozen=True)
class LongCells:
    """Where long features are among all terms, and among the parts of all questions."""

    # terms, parts: shape (levels,): of each level of each long feature its term, and its part
    terms: Ints
    parts: Ints
    # short_terms, short_parts, short_questions: what belongs to no long feature, in order
    short_terms: Ints
    short_parts: Ints
    short_questions: Ints
    features: tuple[slice, ...]  # of each long feature its levels among those of all
    places: tuple[int, ...]  # of each long feature its place among all features

    @classmethod
    def of(cls, questions: Questions) -> "LongCells":
        """Return those of a spec's questions."""
        cells = questions.cells
        places = tuple(place for place, one in enumerate(cells.features) if len(one.codes) >= LONG_FROM)
        ends = np.cumsum([0, *(cells.features[place].count for place in places)]).tolist()
        own = [number for number, (place, _) in enumerate(questions.parts) if place in places]
        none = [np.zeros(0, np.int64)]
        terms = np.concatenate([*none, *(np.arange(cells.starts[at], cells.starts[at + 1]) for at in places)])
        parts = np.concatenate([*none, *(np.arange(questions.starts[q], questions.starts[q + 1]) for q in own)])
        return cls(
            terms,
            parts,
            np.setdiff1d(np.arange(cells.count), terms),
            np.setdiff1d(np.arange(int(questions.starts[-1])), parts),
            np.setdiff1d(np.arange(questions.count), own),
            tuple(slice(start, end) for start, end in pairwise(ends)),
            places,
        )

    def short(self, questions: Questions) -> Questions:
        """Return the questions about nothing and about features that are not long."""
        features = questions.cells.features
        kept = tuple(one for place, one in enumerate(features) if place not in self.places)
        return Questions(Cells(kept), questions.merges)


@dataclass(frozen=True)
class LevelTerms:
    """What is known of terms of levels."""

    # means, variances: shape (arms, levels)
    means: Array
    variances: Array


@dataclass(frozen=True)
class LongLevels:
    """Normal evidence of levels, each for itself, in natural parameters."""

    # information, scores: shape (arms, levels): of terms
    information: Array
    scores: Array
    # counted, count_scores: shape (levels,): of shares of people
    counted: Array
    count_scores: Array

    @classmethod
    def unknown(cls, arms: int, levels: int) -> "LongLevels":
        """Return what is known before any report."""
        return cls(np.zeros((arms, levels)), np.zeros((arms, levels)), np.zeros(levels), np.zeros(levels))

    def with_arms(self, added: int) -> "LongLevels":
        """Return the evidence with more arms, of which nothing is known."""
        more = np.zeros((added, self.information.shape[1]))
        information, scores = np.concatenate([self.information, more]), np.concatenate([self.scores, more])
        return LongLevels(information, scores, self.counted, self.count_scores)

    def faded(self, left: float) -> "LongLevels":
        """Return the evidence of which so much is left; that of shares of people does not fade."""
        return replace(self, information=left * self.information, scores=left * self.scores)

    def with_counts(self, cells: LongCells, counts: Array, variances: Array, people: int) -> "LongLevels":
        """Return what is known after counts (levels,) of so many people, with noise of these variances (levels,)."""
        weights = people / (variances + people * self.shares(cells))
        return LongLevels(
            self.information, self.scores, self.counted + people * weights, self.count_scores + counts * weights
        )

    def with_sums(self, cells: LongCells, slopes: Array, sums: Array, variances: Array, means: Array) -> "LongLevels":
        """Return what is known after sums of residuals; all are (arms, levels).

        slopes: by how much sums change with terms: people, times the mean of what their residuals are multiplied by.
        means: the terms that residuals were measured from.
        """
        away = sums.copy()
        for own in cells.features:
            # Rare levels are mostly noise: in a plain sum they would add theirs to every level.
            trusted = slopes[:, own] / (variances[:, own] + (_UNLIKE * slopes[:, own]) ** 2)
            whole = np.maximum((trusted * slopes[:, own]).sum(axis=1, keepdims=True), 1e-12)
            common = (trusted * sums[:, own]).sum(axis=1, keepdims=True) / whole
            away[:, own] -= common * slopes[:, own]
        weights = slopes / variances
        information = weights * slopes
        return LongLevels(
            self.information + information,
            self.scores + weights * away + information * means,
            self.counted,
            self.count_scores,
        )

    def shares(self, cells: LongCells) -> Array:
        """Return shares of people (levels,), above 0 and with the sum 1 for each feature."""
        found = np.zeros(len(self.counted))
        for own in cells.features:
            even = 1 / (own.stop - own.start)
            surplus = self.count_scores[own] - self.counted[own] * even
            moved, _ = _shrunk(self.counted[None, own], surplus[None], even * _SHARES, np.ones(len(_SHARES)))
            found[own] = _shared_out(even + moved[0], _LEAST * even)
        return found

    def terms(self, cells: LongCells, unit: float) -> LevelTerms:
        """Return what is known of terms; ``unit`` is what expected rewards vary by, 1 at 1/2.

        Notes
        -----
        The shares of scales among a feature's levels, over all arms, are estimated by EM (an adaptive prior: Stephens
        2017, False discovery rates: a new deal), from thoughts worth a few levels.
        """
        means, variances = np.zeros_like(self.information), np.zeros_like(self.information)
        for own in cells.features:
            told = self.information[:, own], self.scores[:, own]
            means[:, own], variances[:, own] = _shrunk(*told, unit * _SCALES, _BEFORE)
        return LevelTerms(means, variances)


def _shared_out(shares: Array, least: float) -> Array:
    """Return the nearest shares (levels,) that are at least ``least`` and have the sum 1.

    Were they cut at 0 and divided by their sum, noise of rare levels would take from the frequent ones.
    """
    low, high = shares.min() - 1.0, shares.max()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(shares - middle, least).sum() > 1 else (low, middle)
    found = np.maximum(shares - high, least)
    return np.asarray(found / found.sum())


def _shrunk(information: Array, scores: Array, scales: Array, before: Array) -> tuple[Array, Array]:
    """Return means and variances (arms, levels) of what is around 0, on one of several scales each.

    information, scores: shape (arms, levels).
    scales: standard deviations (scales,).
    before: how many levels are thought to have each, (scales,).
    """
    squares, inner = scales**2, 1 + scales**2 * information[:, :, None]
    middles = squares * scores[:, :, None] / inner
    likely = (middles * scores[:, :, None] - np.log(inner)) / 2
    among = before / before.sum()
    for _ in range(_STEPS):
        among = before + softmax(likely + np.log(among), axis=2).sum(axis=(0, 1))
        among /= among.sum()
    each = softmax(likely + np.log(among), axis=2)
    means = (each * middles).sum(axis=2)
    spreads = (each * (squares / inner + middles**2)).sum(axis=2) - means**2
    return means, np.maximum(spreads, 0.0)
