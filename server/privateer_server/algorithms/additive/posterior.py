"""A normal posterior over terms, whose prior estimates the size and smoothness of each feature's effect by evidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dsytrd, dtrtri
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_core.arrays import Array


@dataclass(frozen=True)
class WhitePosterior:
    """A normal posterior of each arm's terms.

    With P = R R^T the prior and J the information, its covariance is R (1 + R^T J R)^-1 R^T, or F F^T with F = R U and
    U the transposed inverse of the lower Cholesky factor of 1 + R^T J R.
    """

    # blocks, roots: the terms of each block of the prior, and the root (cells, cells) of its part
    blocks: Sequence[slice]
    roots: Sequence[Array]
    uppers: Array  # shape (arms, terms, terms): U
    white: Array  # shape (arms, terms): means of R^-1 terms
    means: Array  # shape (arms, terms)

    @classmethod
    def fit(cls, information: Array, scores: Array, blocks: Sequence[slice], prior: Sequence[Array]) -> Self:
        """Return the posterior after information (arms, terms, terms) and scores, with a prior covariance a block."""
        roots = [np.asarray(np.linalg.cholesky(matrix), np.float64) for matrix in prior]
        rotated, rotated_scores, inner = np.empty_like(information), np.empty_like(scores), np.empty_like(information)
        for block, root in zip(blocks, roots, strict=True):
            rotated[:, block, : block.stop] = root.T @ information[:, block, : block.stop]
            rotated_scores[:, block] = scores[:, block] @ root
        for block, root in zip(blocks, roots, strict=True):
            # A Cholesky factor is of what is on the diagonal and below.
            inner[:, block.start :, block] = rotated[:, block.start :, block] @ root
        inner[:, np.arange(len(inner[0])), np.arange(len(inner[0]))] += 1.0
        uppers = np.asarray(np.linalg.cholesky(inner), np.float64).transpose(0, 2, 1)
        for upper in uppers:
            upper[:] = dtrtri(upper, lower=0)[0]
        white = (uppers @ (uppers.transpose(0, 2, 1) @ rotated_scores[:, :, None]))[:, :, 0]
        means = np.concatenate([root @ white.T[block] for block, root in zip(blocks, roots, strict=True)]).T
        return cls(blocks, roots, uppers, white, means)

    @property
    def factors(self) -> Array:
        """Shape (arms, terms, terms): each times its own transpose is the covariance of an arm's terms."""
        factors = np.empty_like(self.uppers)
        for block, root in zip(self.blocks, self.roots, strict=True):
            factors[:, block] = root @ self.uppers[:, block]
        return factors

    @property
    def covariances(self) -> Array:
        """Shape (arms, terms, terms)."""
        return self.factors @ self.factors.transpose(0, 2, 1)

    def white_block_moments(self, index: int) -> tuple[Array, Array, Array]:
        """Return a block's root, and the covariances and means of its white terms, for `TermScales.log_evidence`."""
        block = self.blocks[index]
        # Columns before the block have only zeros there.
        rows = self.uppers[:, block, block.start :]
        return self.roots[index], rows @ rows.transpose(0, 2, 1), self.white[:, block]


LENGTHS: Final = (0.125, 0.25, 0.5, 1.0)  # lengths tried over which a function is alike, by a feature's range
_ROUGHNESS_SHARE: Final = 0.05  # share of a function's variance that is each bin's own
_KERNEL_CACHE_SIZE: Final = 512  # features whose kernels are kept, for every round asks for them


@lru_cache(_KERNEL_CACHE_SIZE)
def build_kernels(feature: ShapeCells, lengths: tuple[float, ...] = LENGTHS) -> Array:
    """Return covariances, (kernels, cells, cells): Matern 3/2 between bins of several lengths, none between levels.

    Bins of a circle are apart by its chords: a Matern 3/2 of arcs is no covariance (Gneiting 2013).
    """
    if not feature.bins:
        return np.eye(feature.count)[None]
    positions = np.arange(feature.bins) / feature.bins
    arcs = np.abs(positions[:, None] - positions)
    distances = np.sin(np.pi * arcs) / np.pi if feature.cyclic else arcs
    kernels = []
    for length in lengths:
        scaled = np.sqrt(3) * distances / length
        kernel = np.eye(feature.count)
        kernel[: feature.bins, : feature.bins] *= _ROUGHNESS_SHARE
        kernel[: feature.bins, : feature.bins] += (1 - _ROUGHNESS_SHARE) * (1 + scaled) * np.exp(-scaled)
        kernels.append(kernel)
    return np.array(kernels)


_SCALE_GRID: Final = 0.003125 * 2.0 ** np.arange(9)
"""Standard deviations tried for a feature's terms, in expected reward where that is about 1/2."""
_TYPICAL_SCALE: Final = 0.05
_TOTAL_SCALE: Final = 0.3  # what the sum of few features' terms typically varies by: each of them alone does much
_LOG_SCALE_DEVIATION: Final = 0.7
"""Scales are log-normal around the typical one, with this standard deviation of the logarithm."""
_WIDE_SCALE: Final = 0.2  # standard deviation of a feature's terms where no evidence narrows it
_TYPICAL_LEVEL_SCALE: Final = 0.1  # what many arms typically differ by for everybody
_RIDGE_SHARE: Final = 1e-3  # share of variance that is left of what a feature's terms have in common
_ARM_LEVEL_DEVIATION: Final = 0.25
"""Standard deviation of what arms differ by for everybody, where expected rewards are about 1/2."""
_LEVEL_DEVIATION: Final = 0.5  # standard deviation of what all arms have in common, before any report
_N_STEPS: Final = 5
_RARE_REWARD_UNIT: Final = 0.2  # what 1 is of scales where about one in twenty has a reward
_TOLERANCE: Final = 0.02  # relative change of all variances below which no further step is taken


@dataclass(frozen=True)
class TermPosterior:
    """The posterior of terms."""

    means: Array  # shape (arms, terms)
    factors: Array  # shape (arms, terms, terms): with F F^T the covariance of an arm's terms
    level: float  # the expected reward that all arms have in common
    prior: tuple[Array, ...]  # the prior covariance (cells, cells) of the intercept, and of each feature's terms

    @property
    def covariances(self) -> Array:
        """Shape (arms, terms, terms)."""
        return self.factors @ self.factors.transpose(0, 2, 1)

    @classmethod
    def fit(
        cls, information: Array, scores: Array, cells: Cells, prior: Sequence[Array], level: float
    ) -> "TermPosterior":
        """Return the posterior under a prior covariance of the intercept's distance from ``level``, and of terms."""
        posterior = WhitePosterior.fit(information, scores - level * information[:, :, 0], list_blocks(cells), prior)
        posterior.means[:, 0] += level
        return cls(posterior.means, posterior.factors, level, tuple(prior))

    def predictive_log_density(self, information: Array, scores: Array) -> float:
        """Return the log density of observations with these statistics, up to a constant that depends on them alone.

        With m the means, J and h the statistics, and b = F^T (h - J m), it is the sum over arms of
        m^T h - m^T J m / 2 + b^T (1 + F^T J F)^-1 b / 2 - log |1 + F^T J F| / 2.
        """
        transposed = self.factors.transpose(0, 2, 1)
        residuals = scores - np.einsum("kij,kj->ki", information, self.means)
        inner = np.eye(information.shape[2]) + transposed @ information @ self.factors
        log_density = float((self.means * (scores + residuals)).sum()) / 2
        for lower, rotated in zip(np.linalg.cholesky(inner), transposed @ residuals[:, :, None], strict=True):
            solution = solve_triangular(lower, rotated, lower=True)
            log_density += float(np.square(solution).sum()) / 2 - float(np.log(lower.diagonal()).sum())
        return log_density

    @classmethod
    def from_statistics(
        cls, information: Array, scores: Array, cells: Cells, masses: Array, declared: float | None
    ) -> "TermPosterior":
        """Return the posterior of terms, with scales of features and of the level that fit the evidence.

        information (arms, terms, terms): sums of M^T S^-1 M over observations M theta + noise of covariance S.
        scores (arms, terms): sums of M^T S^-1 observation.
        cells: those of all features.
        masses (terms,): shares of people by cell.
        declared: the mean reward in [0, 1] that the spec expects; None: unknown.
        """
        level, prior_moments = estimate_common_level(information, scores, declared), prior_level_moments(declared)
        unit = reward_unit(level)
        shares = [masses[cells.feature_slice(index)] for index in range(len(cells.features))]
        typical = typical_scale(cells)
        families = [build_scales(*arguments, unit, typical) for arguments in zip(cells.features, shares, strict=True)]
        blocks = list_blocks(cells)
        prior = [
            np.full((1, 1), (_ARM_LEVEL_DEVIATION * unit) ** 2),
            *(family.mean_covariance(family.prior) for family in families),
        ]
        fitted_blocks = slice(1, None)
        if declared is not None and unit < _RARE_REWARD_UNIT:
            # Arms are taken to be alike until reports say otherwise: noise must not make one of them the best.
            families, fitted_blocks = [TermScales.from_level(unit), *families], slice(0, None)
            prior[0] = families[0].mean_covariance(families[0].prior)
        for _ in range(_N_STEPS if information.any() else 0):
            posterior = WhitePosterior.fit(information, scores - level * information[:, :, 0], blocks, prior)
            level = _update_common_level(level + posterior.means[:, 0], float(prior[0][0, 0]), prior_moments)
            old_prior = prior[fitted_blocks]
            prior[fitted_blocks] = update_priors(families, posterior, fitted_blocks.start)
            if has_converged(old_prior, prior[fitted_blocks]):
                break
        return cls.fit(information, scores, cells, prior, level)

    def unshrunk(self, information: Array, scores: Array, cells: Cells, masses: Array) -> "TermPosterior":
        """Return the posterior under a wide, smooth prior that does not depend on evidence, for intervals.

        The own prior is so near to the likeliest one that its intervals of 95 % hold in 70 to 90 %.
        Parameters are those of `from_statistics`.
        """
        unit = reward_unit(self.level)
        prior = [np.full((1, 1), (_ARM_LEVEL_DEVIATION * unit) ** 2)]
        for feature, columns in zip(cells.features, list_blocks(cells)[1:], strict=True):
            prior.append((_WIDE_SCALE * unit) ** 2 * _centre_kernels(build_kernels(feature)[-1:], masses[columns])[0])
        return TermPosterior.fit(information, scores, cells, prior, self.level)


def list_blocks(cells: Cells) -> list[slice]:
    """List the terms of the intercept, and of each feature."""
    return [slice(0, 1), *(cells.feature_slice(index) for index in range(len(cells.features)))]


def has_converged(earlier: Sequence[Array], later: Sequence[Array]) -> bool:
    """Return whether the variances of features' terms are nearly unchanged since the step before."""
    return all(abs(np.trace(new) / np.trace(old) - 1) < _TOLERANCE for old, new in zip(earlier, later, strict=True))


def update_priors(families: Sequence["TermScales"], posterior: WhitePosterior, start: int) -> list[Array]:
    """Return the posterior mean covariances of blocks, from block number ``start`` on."""
    return [
        family.mean_covariance(
            softmax(family.log_evidence(*posterior.white_block_moments(index)) + np.log(family.prior))
        )
        for index, family in enumerate(families, start)
    ]


def reward_unit(level: float) -> float:
    """Return the unit of scales at a mean reward: 4 times the variance of a binary reward with this mean, 1 at 1/2."""
    bounded = min(max(level, 0.005), 0.995)
    return 4 * bounded * (1 - bounded)


def typical_scale(cells: Cells) -> float:
    """Return the typical standard deviation of a feature's terms before any report."""
    return max(_TYPICAL_SCALE, _TOTAL_SCALE / math.sqrt(max(len(cells.features), 1)))


def _centre_kernels(kernels: Array, masses: Array) -> Array:
    """Return the kernels of a feature's terms without their common part, which is in the intercept."""
    centre = np.eye(len(masses)) - masses
    return np.asarray(centre @ kernels @ centre.T + _RIDGE_SHARE * np.eye(len(masses)))


def prior_level_moments(declared: float | None) -> tuple[float, float]:
    """Return the mean and standard deviation of the level before any report."""
    return (0.5, _LEVEL_DEVIATION) if declared is None else (declared, _LEVEL_DEVIATION * reward_unit(declared))


def estimate_common_level(information: Array, scores: Array, declared: float | None) -> float:
    """Return the mean reward of all arms together, shrunk towards 1/2 or the declared rate."""
    prior_mean, prior_deviation = prior_level_moments(declared)
    precision = float(information[:, 0, 0].sum()) + prior_deviation**-2
    return (float(scores[:, 0].sum()) + prior_mean * prior_deviation**-2) / precision


def _update_common_level(intercepts: Array, arm_variance: float, prior_moments: tuple[float, float]) -> float:
    """Return the mean reward of all arms together, from the arms' intercepts and the prior moments."""
    precisions = len(intercepts) / arm_variance, prior_moments[1] ** -2
    return float((precisions[0] * intercepts.mean() + precisions[1] * prior_moments[0]) / sum(precisions))


@dataclass(frozen=True)
class TermScales:
    """Priors of one feature's terms, with several lengths and scales."""

    kernels: Array  # shape (lengths, cells, cells): covariances at scale 1
    scales: Array  # shape (scales,)
    prior: Array  # shape (lengths * scales,): how likely each is before any report

    @classmethod
    def from_level(cls, unit: float) -> "TermScales":
        """Return the scales of the differences between the arms' levels."""
        prior = np.exp(-((np.log(_SCALE_GRID / _TYPICAL_LEVEL_SCALE) / _LOG_SCALE_DEVIATION) ** 2) / 2)
        return cls(np.ones((1, 1, 1)), np.asarray(unit * _SCALE_GRID), prior / prior.sum())

    @cached_property
    def roots(self) -> Array:
        """The root of each kernel, (lengths, cells, cells)."""
        return np.asarray(np.linalg.cholesky(self.kernels))

    def with_spike(self, effect_probability: float) -> "TermScales":
        """Return the scales with a prior that gives the smallest all but ``effect_probability`` of the probability."""
        is_smallest = self.scales == self.scales.min()
        spike = np.tile(is_smallest / is_smallest.sum(), len(self.kernels)) / len(self.kernels)
        return TermScales(self.kernels, self.scales, (1 - effect_probability) * spike + effect_probability * self.prior)

    def mean_covariance(self, probabilities: Array) -> Array:
        """Return the covariance averaged over scales, which is wider than the most likely one."""
        by_length = probabilities.reshape(len(self.kernels), -1) @ self.scales**2
        return np.asarray(np.tensordot(by_length, self.kernels, 1))

    def log_evidence(self, root: Array, inverses: Array, means: Array) -> Array:
        """Return the log marginal likelihood of each prior, all other features integrated out, up to a constant.

        root (cells, cells): R, with R R^T the prior of a posterior.
        inverses, means: shapes (arms, cells, cells) and (arms, cells): the posterior's covariances and means of R^-1
            terms.
        """
        precisions = np.linalg.inv(inverses)
        cavity, scores = precisions - np.eye(len(root)), (precisions @ means[:, :, None])[:, :, 0]
        return self.evaluate(np.asarray(np.linalg.solve(root, self.roots), np.float64), cavity, scores)

    def evaluate(self, roots: Array, information: Array, scores: Array) -> Array:
        """Return the log marginal likelihood of each prior after information and scores, up to a constant.

        roots (lengths, terms, cells): those of priors at scale 1.
        information, scores: shapes (arms, terms, terms) and (arms, terms).
        """
        upper = roots.transpose(0, 2, 1)[:, None]
        matrices, vectors = upper @ information @ roots[:, None], (upper @ scores[:, :, None])[..., 0]
        diagonals, squares = _tridiagonalize(matrices, vectors)
        variances = self.scales[:, None] ** 2
        pivots, coupling = np.empty((len(diagonals), len(roots), len(variances), len(scores))), np.zeros(())
        for index in reversed(range(len(diagonals))):
            pivots[index] = 1 + variances * diagonals[index, :, None] - coupling
            coupling = variances**2 * squares[index, :, None] / pivots[index]
        terms = coupling / variances - np.log(pivots).sum(axis=0)
        return np.asarray(terms.sum(axis=2).ravel() / 2)


def _tridiagonalize(matrices: Array, vectors: Array) -> tuple[Array, Array]:
    """Return the diagonal of Q A Q^T, which is tridiagonal with Q b = |b| e_0, and the squares of |b| and neighbours.

    Both have the rows of a matrix first. LAPACK's reduction leaves the first row where it is: that is b.
    A determinant and a square under many scales take this alone, and no vectors of A, which take ten times as long.

    matrices, vectors: shapes (..., n, n) and (..., n): of symmetric A, and of b.
    """
    *batch, n, _ = matrices.shape
    bordered = np.zeros((*batch, n + 1, n + 1))
    bordered[..., 0, 1:], bordered[..., 1:, 0], bordered[..., 1:, 1:] = vectors, vectors, matrices
    rows = [dsytrd(matrix.T, lower=1)[1:3] for matrix in bordered.reshape(-1, n + 1, n + 1)]
    diagonals, neighbours = (np.array(values).T.reshape(-1, *batch) for values in zip(*rows, strict=True))
    return diagonals[1:], neighbours**2


def build_scales(feature: ShapeCells, masses: Array, unit: float, typical: float = _TYPICAL_SCALE) -> TermScales:
    """Return the scales of a feature's terms; ``masses`` (cells,) are its shares of participants."""
    kernels = _centre_kernels(build_kernels(feature), masses)
    prior = np.exp(-((np.log(_SCALE_GRID / typical) / _LOG_SCALE_DEVIATION) ** 2) / 2)
    scale_probabilities = np.tile(prior / prior.sum(), len(kernels)) / len(kernels)
    return TermScales(kernels, np.asarray(unit * _SCALE_GRID), scale_probabilities)
