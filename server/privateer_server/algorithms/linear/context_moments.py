"""Estimated moments of contexts, and the slopes of residuals that follow from them."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import ndtri

from privateer_core.algorithms.linear.design_matrix import (
    DesignMatrix,
    prior_moments,
    unpack_moments,
    weights,
)
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.arrays import Array

N_SIMULATED: Final = 1 << 15
_MIN_EIGENVALUE: Final = 1e-3  # the least second moment in any direction, and share of answers, that is believed
_MAX_SQUARED_LENGTH: Final = 2.0  # squared length to which whitened features are cut, by their number
_CUT_SHARE: Final = 0.02  # share of rows in a curator's records that are cut to length 1
_N_MEASURED: Final = 1 << 12  # people drawn to measure the lengths of rows
_INTERCEPT_SHARE: Final = 0.5  # share of a row's squared length that its coordinate 1 has: products with it tell means
_MEAN_VARIANCES: Final = (0.2, 0.3)  # variance of whitened features' means: the least, and the one before anybody tells
_COVARIANCE_VARIANCES: Final = (0.003, 0.1)
"""Variance of what they have to do with each other: the least, and the most, which is that before anybody tells."""
_NOISE_FACTOR: Final = 1.2  # mean square of what is reported, by that of noise, which is taken for noise alone
_MAX_MEAN: Final = 0.98
_MIN_VARIANCE: Final = 1e-3  # the largest mean of a number in [-1, 1], and the least variance of a coordinate
_MAX_CORRELATION: Final = 0.95  # no two coordinates are taken to be correlated more than this
_MIN_PRECISION: Final = 1e-9


@dataclass(frozen=True)
class Slopes:
    """The expected sums of a round, as linear functions of the parameters."""

    # shape (classes, arms, d, d): the mean vector of a class in an arm's block, by the arm's parameter theta less the
    # mean that the policy has
    matrices: Array
    # shape (classes, arms, d): that mean vector if the policy's means are true, since residuals are clipped
    offsets: Array
    # shape (classes, arms, d, d): by how people's rewards differ from what is expected, the covariance of a person's
    # vector in the block
    spreads: Array


def matrix_power(moments: Array, power: float) -> Array:
    """Return a power of a symmetric matrix, with its small eigenvalues raised to a minimum."""
    values, vectors = np.linalg.eigh(moments)
    return np.asarray((vectors * np.maximum(values, _MIN_EIGENVALUE) ** power) @ vectors.T)


def simulate_rows(design: DesignMatrix, moments: Array, rng: np.random.Generator, n_rows: int = N_SIMULATED) -> Array:
    """Draw rows (n_rows, d): normal with the given second moments, with clipped numbers and answers of 1 and -1.

    An answer is yes where a normal variable is below a cut, so that yes is as frequent as the moments say; what answers
    have to do with each other is less than they say.
    """
    means = moments[0, 1:]
    deviation_root = matrix_power(moments[1:, 1:] - np.outer(means, means), 0.5)
    noise = rng.normal(size=(n_rows, len(means))) @ deviation_root
    numbers, bounded, signs = means + noise, design.is_bounded, design.is_sign
    numbers[:, bounded] = np.clip(numbers[:, bounded], -1.0, 1.0)
    quantiles = ndtri(np.clip((1 + means[signs]) / 2, _MIN_EIGENVALUE, 1 - _MIN_EIGENVALUE))
    deviations = np.sqrt(np.square(deviation_root).sum(axis=0))[signs]
    numbers[:, signs] = np.where(noise[:, signs] < quantiles * deviations, 1.0, -1.0)
    return np.concatenate([np.ones((n_rows, 1)), numbers], axis=1)


def compute_slopes(policy: LinearPolicy, moments: Array, n_rows: int = N_SIMULATED, variance: float = 0.25) -> Slopes:
    """Return the slopes of a policy, over simulated participants with these second moments and all classes.

    Rewards vary by ``variance`` at most, which is known of people's rewards on the whole: the policy of a round may not
    have known.

    With omega the weight of the expected reward m of the arm played, l' the link's derivative and w the whitened
    direction, the matrix of an arm is the mean of omega l' w x^T over those who play it. All of these are the open
    round's, whoever decided; who plays an arm is what the policies say that decided (`choose_reported_arms`).
    """
    rng = np.random.default_rng([policy.seed, policy.version])
    rows = simulate_rows(policy.design, moments, rng, n_rows)
    coins = rng.integers(0, 2**32, len(rows), dtype=np.uint32)
    arms, row_classes = policy.choose_reported_arms(rows, coins)
    products = np.einsum("nd,nd->n", rows, policy.means[arms])
    link = policy.rewards_link
    means = link.means(products)
    weighted = weights(means)[:, None] * policy.residual_directions(rows)
    tilt_masses, errors = link.derivatives(products)[:, None] * rows, link.unclipped_means(products) - means
    classes, n_arms = policy.classes, len(policy.means)
    d = rows.shape[1]
    matrices, offsets = np.zeros((classes, n_arms, d, d)), np.zeros((classes, n_arms, d))
    spreads, scaled = np.zeros((classes, n_arms, d, d)), weighted * np.minimum(means * (1 - means), variance)[:, None]
    for class_index in range(classes):
        class_size = max(1, int((row_classes == class_index).sum()))
        for arm in range(n_arms):
            members = np.flatnonzero((row_classes == class_index) & (arms == arm))
            matrices[class_index, arm] = weighted[members].T @ tilt_masses[members] / class_size
            offsets[class_index, arm] = errors[members] @ weighted[members] / class_size
            spreads[class_index, arm] = weighted[members].T @ scaled[members] / class_size
    return Slopes(matrices, offsets, spreads)


@dataclass(frozen=True)
class Features:
    """Estimated moments of whitened features."""

    # means, covariances: shapes (d - 1,) and (d - 1, d - 1): 0 and the identity if what was assumed is true
    means: Array
    covariances: Array
    doubt: float  # the square of how far second moments may be off in any direction, relative to what they are


class Contexts:
    """The second moments of contexts as reported, and estimates from them, for rows of a design."""

    def __init__(self, design: DesignMatrix) -> None:
        self.design, self.assumed = design, prior_moments(design)
        d, self._means = design.dimension, self.assumed[0, 1:]
        covariances = self.assumed[1:, 1:] - np.outer(self._means, self._means)
        self._whitening, self._unwhitening = matrix_power(covariances, -0.5), matrix_power(covariances, 0.5)
        self._lengths = np.full(d, math.sqrt((1 - _INTERCEPT_SHARE) / (_MAX_SQUARED_LENGTH * max(1, d - 1))))
        self._lengths[0] = math.sqrt(_INTERCEPT_SHARE)

    @cached_property
    def whitening_map(self) -> Array:
        """The matrix, (d, d), that maps rows to the coordinate 1 and whitened features."""
        matrix = np.eye(len(self._lengths))
        matrix[1:, 1:], matrix[0, 1:] = self._whitening, -self._means @ self._whitening
        return matrix

    @property
    def moment_matrix(self) -> Array:
        """The matrix, (d, d), that maps rows to a shortened intercept and whitened features."""
        return np.asarray(self.whitening_map * self._lengths)

    def weigh_features(self, variances: Array, moments: Array) -> Array:
        """Return the matrix that maps rows to coordinates of the basis, longer where ``variances`` (d,) are larger.

        One in fifty rows with these second moments is longer than 1, and is cut to that.
        """
        matrix = self.whitening_map * np.sqrt(variances)
        rows = simulate_rows(self.design, moments, np.random.default_rng(0), _N_MEASURED)
        return np.asarray(matrix / np.quantile(np.linalg.norm(rows @ matrix, axis=1), 1 - _CUT_SHARE))

    def moment_scales(self, matrix: Array, share: float) -> Array:
        """Return what second moments of whitened rows are multiplied with in a report, (d, d).

        matrix: the one that maps rows to reported coordinates, which are multiples of the whitened ones.
        share: that of second moments in a report's squared length.
        """
        lengths = np.diag(np.linalg.solve(self.whitening_map, matrix))
        return np.asarray(math.sqrt(share) * np.outer(lengths, lengths))

    def weigh_sums(self, sums: Array, scales: Array, n_participants: int, noise: float) -> tuple[Array, Array]:
        """Return second moments of whitened rows times their precisions, and the precisions, (d, d) each.

        sums: the packed sum of what ``n_participants`` reported.
        scales: the sum of their `moment_scales`.
        noise: the variance of the noise in a coordinate of ``sums``.
        """
        d = self.design.dimension
        # Of two different coordinates, what is packed is the product times the square root of 2.
        noise_variances = noise / scales**2 * (1 + np.eye(d)) / 2
        precision = 1 / (noise_variances + 1 / n_participants)
        return precision * unpack_moments(sums, d) / scales, precision

    def estimate_features(self, moments: Array, precision: Array) -> Features:
        """Return the estimated moments of whitened features.

        Means and covariances are shrunk by empirical Bayes: as far as their mean squares are what noise makes.
        """
        means, mean_variance = _shrink_means(moments[0, 1:], precision[0, 1:])
        precisions = precision[1:, 1:]
        raw = moments[1:, 1:] / np.maximum(precisions, _MIN_PRECISION) - np.outer(means, means)
        pairs = ~np.eye(len(means), dtype=bool)
        prior_variances = np.where(pairs, _covariance_variance(raw[pairs], precisions[pairs]), _COVARIANCE_VARIANCES[1])
        shrinkage = precisions / (precisions + 1 / prior_variances)
        errors = float((1 / (precisions + 1 / prior_variances)).sum(axis=1).mean())
        return Features(means, shrinkage * raw + (1 - shrinkage) * np.eye(len(means)), errors + mean_variance / 2)

    def build_row_moments(self, features: Features) -> Array:
        """Return second moments (d, d) of rows, within the bounds of numbers and with unit squares of signs."""
        bounded, signs = self.design.is_bounded, self.design.is_sign
        means = self._means + features.means @ self._unwhitening
        means = np.where(bounded, np.clip(means, -_MAX_MEAN, _MAX_MEAN), means)
        covariances = self._unwhitening @ features.covariances @ self._unwhitening
        max_variances = np.where(bounded, 1 - means**2, np.inf)
        variances = np.where(signs, max_variances, np.clip(np.diag(covariances), _MIN_VARIANCE, max_variances))
        limits = _MAX_CORRELATION * np.sqrt(np.outer(variances, variances))
        covariances = np.clip(covariances, -limits, limits)
        np.fill_diagonal(covariances, variances)
        row = np.concatenate([np.ones(1), means])
        second_moments = np.outer(row, row)
        second_moments[1:, 1:] += covariances
        return second_moments


def build_frame(moments: Array) -> Array:
    """Return the (d, d) frame in which theta is the reward at the mean context and slopes per standard deviation."""
    means = moments[0, 1:]
    deviations = np.sqrt(np.maximum(np.diag(moments)[1:] - means**2, _MIN_VARIANCE))
    frame_matrix = np.diag(np.concatenate([np.ones(1), 1 / deviations]))
    frame_matrix[0, 1:] = -means / deviations
    return frame_matrix


def _shrink_means(moments: Array, precision: Array) -> tuple[Array, float]:
    """Return shrunk means, and their average posterior variance."""
    min_variance, prior_variance = _MEAN_VARIANCES
    if precision.any():
        prior_variance = max(min_variance, float((np.square(moments / precision) - 1 / precision).mean()))
    variances = 1 / (precision + 1 / prior_variance)
    return moments * variances, float(variances.mean())


def _covariance_variance(raw: Array, precision: Array) -> float:
    """Return the variance of covariances between features beyond that of noise or chance."""
    min_variance, max_variance = _COVARIANCE_VARIANCES
    if not (raw.size and precision.any()):
        return max_variance
    noise = float((1 / precision).mean())
    return min(max_variance, max(min_variance, float(np.square(raw).mean()) - _NOISE_FACTOR * noise))
