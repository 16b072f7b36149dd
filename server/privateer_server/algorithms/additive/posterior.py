"""A normal posterior over terms, whose prior finds by evidence how much each feature matters, and how smoothly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_server.algorithms.additive.kernels import kernels_of
from privateer_server.algorithms.additive.white_posterior import WhitePosterior

Array = NDArray[np.float64]
_SCALES: Final = 0.003125 * 2.0 ** np.arange(9)
"""Standard deviations tried for a feature's terms, in expected reward where that is about 1/2."""
_TYPICAL: Final = 0.05
_ALL_FEATURES: Final = 0.3
"""What the sum of few features' terms typically varies by: each of them alone does much."""
_SPREAD: Final = 0.7
"""Scales are log-normal around the typical one, with this standard deviation of the logarithm."""
_WIDE: Final = 0.2
"""Standard deviation of a feature's terms where no evidence narrows it."""
_LEVELS: Final = 0.1
"""What many arms typically differ by for everybody."""
_LEFT: Final = 1e-3
"""Share of variance that is left of what a feature's terms have in common."""
_ARMS: Final = 0.25
"""Standard deviation of what arms differ by for everybody, where expected rewards are about 1/2."""
_LEVEL: Final = 0.5
"""Standard deviation of what all arms have in common, before any report."""
_STEPS: Final = 5
_RARE: Final = 0.2
"""What 1 is of scales where about one in twenty has a reward."""
_SETTLED: Final = 0.02
"""Relative change of all variances below which no further step is taken."""


@dataclass(frozen=True)
class TermPosterior:
    """What is known of terms."""

    means: Array  # shape (arms, terms)
    factors: Array  # shape (arms, terms, terms): with F F^T the covariance of an arm's terms
    level: float  # the expected reward that all arms have in common

    @property
    def covariances(self) -> Array:
        """Shape (arms, terms, terms)."""
        return self.factors @ self.factors.transpose(0, 2, 1)

    @classmethod
    def of(
        cls, information: Array, scores: Array, cells: Cells, masses: Array, declared: float | None
    ) -> "TermPosterior":
        """Return the posterior.

        information (arms, terms, terms): sums of M^T S^-1 M over observations M theta + noise of covariance S.
        scores (arms, terms): sums of M^T S^-1 observation.
        cells: those of all features.
        masses (terms,): shares of people by cell.
        declared: a mean reward in [0, 1] that is expected; None: nobody knows.
        """
        level, usual = common_level(information, scores, declared), level_before(declared)
        unit = _unit(level)
        parts = [masses[cells.of_feature(place)] for place in range(len(cells.features))]
        typical = typical_scale(len(cells.features))
        families = [scales_of(*own, unit, typical) for own in zip(cells.features, parts, strict=True)]
        blocks = [slice(0, 1), *(cells.of_feature(place) for place in range(len(cells.features)))]
        prior = [np.full((1, 1), (_ARMS * unit) ** 2), *(family.average(family.before) for family in families)]
        own = slice(1, None)
        if declared is not None and unit < _RARE:
            # Arms are taken to be alike until reports say otherwise: noise must not make one of them the best.
            families, own = [TermScales.of_level(unit), *families], slice(0, None)
            prior[0] = families[0].average(families[0].before)
        for _ in range(_STEPS if information.any() else 0):
            known = WhitePosterior.of(information, scores - level * information[:, :, 0], blocks, prior)
            level = _common(level + known.means[:, 0], float(prior[0][0, 0]), usual)
            before, prior[own] = (
                prior[own],
                [
                    family.average(softmax(family.evidence(*known.told(place)) + np.log(family.before)))
                    for place, family in enumerate(families, own.start)
                ],
            )
            if settled(before, prior[own]):
                break
        known = WhitePosterior.of(information, scores - level * information[:, :, 0], blocks, prior)
        known.means[:, 0] += level
        return cls(known.means, known.factors, level)

    def unshrunk(self, information: Array, scores: Array, cells: Cells, masses: Array) -> "TermPosterior":
        """Return the posterior under a prior that is wide, and smooth, whatever evidence says: for intervals.

        The own prior is so near to the likeliest one that its intervals of 95 % hold in 70 to 90 %.
        Parameters are those of `of`.
        """
        unit, blocks, prior = _unit(self.level), [slice(0, 1)], [np.full((1, 1), (_ARMS * _unit(self.level)) ** 2)]
        for place, feature in enumerate(cells.features):
            own = cells.of_feature(place)
            blocks.append(own)
            prior.append((_WIDE * unit) ** 2 * _centred(kernels_of(feature)[-1:], masses[own])[0])
        known = WhitePosterior.of(information, scores - self.level * information[:, :, 0], blocks, prior)
        known.means[:, 0] += self.level
        return TermPosterior(known.means, known.factors, self.level)


def settled(before: Sequence[Array], after: Sequence[Array]) -> bool:
    """Tell whether the variances of features' terms are about what they were a step before."""
    return all(abs(np.trace(new) / np.trace(old) - 1) < _SETTLED for old, new in zip(before, after, strict=True))


def _unit(level: float) -> float:
    """Return what 1 is of scales where so much is expected: as much as a reward of 0 or 1 may vary, 1 at 1/2."""
    kept = min(max(level, 0.005), 0.995)
    return 4 * kept * (1 - kept)


def _centred(kernels: Array, masses: Array) -> Array:
    """Return kernels of a feature's terms less what all have in common, which is everybody's term."""
    centre = np.eye(len(masses)) - masses
    return np.asarray(centre @ kernels @ centre.T + _LEFT * np.eye(len(masses)))


def level_before(declared: float | None) -> tuple[float, float]:
    """Return mean and standard deviation of the level before any report: rates up to ten times others are likely."""
    return (0.5, _LEVEL) if declared is None else (declared, _LEVEL * _unit(declared))


def common_level(information: Array, scores: Array, declared: float | None) -> float:
    """Return the mean reward that all arms have in common, shrunk towards 1/2 or what is declared."""
    middle, spread = level_before(declared)
    precision = float(information[:, 0, 0].sum()) + spread**-2
    return (float(scores[:, 0].sum()) + middle * spread**-2) / precision


def _common(intercepts: Array, spread: float, before: tuple[float, float]) -> float:
    """Return the mean reward that arms have in common, by their own ones and what is thought before any report."""
    precisions = len(intercepts) / spread, before[1] ** -2
    return float((precisions[0] * intercepts.mean() + precisions[1] * before[0]) / sum(precisions))


@dataclass(frozen=True)
class TermScales:
    """Priors of one feature's terms, of several lengths and scales."""

    kernels: Array  # shape (lengths, cells, cells): covariances at scale 1
    scales: Array  # shape (scales,)
    before: Array  # shape (lengths * scales,): how likely each is before any report

    @classmethod
    def of_level(cls, unit: float) -> "TermScales":
        """Return the scales of what arms differ by for everybody."""
        prior = np.exp(-((np.log(_SCALES / _LEVELS) / _SPREAD) ** 2) / 2)
        return cls(np.ones((1, 1, 1)), np.asarray(unit * _SCALES), prior / prior.sum())

    @cached_property
    def _roots(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.kernels))

    def from_nothing(self, doubt: float) -> "TermScales":
        """Return the same scales, of which the least has all but ``doubt`` of the probability before any report."""
        least = self.scales == self.scales.min()
        nothing = np.tile(least / least.sum(), len(self.kernels)) / len(self.kernels)
        return TermScales(self.kernels, self.scales, (1 - doubt) * nothing + doubt * self.before)

    def average(self, probabilities: Array) -> Array:
        """Return the mean covariance: what is not known stays wide, where the likeliest one would be too sure."""
        by_length = probabilities.reshape(len(self.kernels), -1) @ self.scales**2
        return np.asarray(np.tensordot(by_length, self.kernels, 1))

    def evidence(self, root: Array, inverses: Array, means: Array) -> Array:
        """Return the log marginal likelihood of each, all other features integrated out, up to a constant.

        root (cells, cells): R, with R R^T the prior of a posterior.
        inverses, means: shapes (arms, cells, cells) and (arms, cells): the posterior's covariances and means of R^-1
            terms.
        """
        precisions = np.linalg.inv(inverses)
        cavity, scores = precisions - np.eye(len(root)), precisions @ means[:, :, None]
        sides = np.linalg.solve(root, self._roots)[:, None]
        upper = sides.transpose(0, 1, 3, 2)
        values, vectors = np.linalg.eigh(upper @ cavity @ sides)
        along = (vectors.transpose(0, 1, 3, 2) @ (upper @ scores))[..., 0]
        values = np.maximum(values, 0.0)[:, None]
        squares = self.scales[:, None, None] ** 2
        found = squares * along[:, None] ** 2 / (1 + squares * values) - np.log1p(squares * values)
        return np.asarray(found.sum(axis=(2, 3)).ravel() / 2)


def typical_scale(features: int) -> float:
    """Return the standard deviation that the terms of one of so many features typically have."""
    return max(_TYPICAL, _ALL_FEATURES / math.sqrt(max(features, 1)))


def scales_of(feature: ShapeCells, masses: Array, unit: float, typical: float = _TYPICAL) -> TermScales:
    """Return the scales of a feature's terms, whose shares of people are ``masses`` (cells,)."""
    kernels = _centred(kernels_of(feature), masses)
    prior = np.exp(-((np.log(_SCALES / typical) / _SPREAD) ** 2) / 2)
    before = np.tile(prior / prior.sum(), len(kernels)) / len(kernels)
    return TermScales(kernels, np.asarray(unit * _SCALES), before)
