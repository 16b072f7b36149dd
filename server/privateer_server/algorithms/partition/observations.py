"""Observations of averages over bins, and the Gaussian process regression of arms' values on them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from scipy.special import expit

from privateer_core.arrays import Array
from privateer_server.algorithms.partition.kernel import LENGTHS, SPREADS, ConstantKernel, Factors, Kernel, PriorScale


@dataclass(frozen=True)
class CommonPart:
    """The model v_k = c + d_k: arms' values are a common part c and parts of their own, normal and independent.

    A sum of scores over a bin is the bin's share of people times a value. Where shares are unknown, and rewards are far
    from the middle of their range, a wrong share moves the values of all arms alike: c takes that up, and what is known
    of differences between arms stays what it is.

    With C the covariance of d_k, C_c that of c, L_k the precision matrix of the observations of arm k and w_k that
    times what was observed, P_k = (C^-1 + L_k)^-1 is the covariance of v_k if c is known, and
    B_k = P_k C^-1 = 1 - P_k L_k what c moves it by. Observations of v_k tell of c with precision
    S_k = (C + L_k^-1)^-1 = L_k - L_k P_k L_k, and h_k = w_k - L_k P_k w_k is S_k times what they find. So c has the
    precision Q = C_c^-1 + sum S_k and the mean Q^-1 sum h_k. No inverse of C_c is taken: it may be singular.
    """

    own_covariances: Array  # shape (arms, bins, bins): P_k
    # information, weighted: shapes (arms, bins, bins) and (arms, bins): L_k and w_k
    information: Array
    weighted: Array
    covariance: Array  # shape (bins, bins): C_c

    @cached_property
    def _shift(self) -> Array:
        """B_k, shape (arms, bins, bins)."""
        return np.asarray(np.eye(self.own_covariances.shape[1]) - self.own_covariances @ self.information)

    @cached_property
    def _residual(self) -> Array:
        """h_k, shape (arms, bins)."""
        own_means = (self.own_covariances @ self.weighted[..., None])[..., 0]
        return np.asarray(self.weighted - np.einsum("kij,kj->ki", self.information, own_means))

    @cached_property
    def _ratio(self) -> Array:
        """C_c Q = 1 + C_c sum S_k, shape (bins, bins)."""
        precision = (self.information @ self._shift).sum(axis=0)
        return np.asarray(np.eye(len(self.covariance)) + self.covariance @ precision)

    @cached_property
    def _weight(self) -> Array:
        """C_c^-1 times the mean of the common part, shape (bins,)."""
        return np.asarray(np.linalg.solve(self._ratio.T, self._residual.sum(axis=0)))

    @cached_property
    def mean(self) -> Array:
        """The common part's posterior mean, shape (bins,)."""
        return np.asarray(self.covariance @ self._weight)

    def means(self) -> Array:
        """Return posterior means of arms' values, shape (bins, arms)."""
        own_means = np.einsum("kij,kj->ik", self.own_covariances, self.weighted)
        return np.asarray(own_means + np.einsum("kij,j->ik", self._shift, self.mean))

    def variances(self) -> Array:
        """Return posterior variances of arms' values, shape (bins, arms)."""
        return np.asarray(np.diagonal(self.own_covariances, axis1=1, axis2=2).T + self._common_variances(self._shift))

    def variances_without_common_part(self) -> Array:
        """Return posterior variances of arms' values without their common part, shape (bins, arms)."""
        deviations = self._shift - self._shift.mean(axis=0)
        return np.asarray(np.diagonal(self.own_covariances, axis1=1, axis2=2).T + self._common_variances(deviations))

    def _common_variances(self, moved: Array) -> Array:
        """Return the diagonals of moved Q^-1 moved^T, shape (bins, arms)."""
        return np.asarray(np.einsum("kij,kij->ik", moved @ np.linalg.solve(self._ratio, self.covariance), moved))

    def predict_boxes(self, own_covariance: Array, common_covariance: Array) -> Array:
        """Return posterior means over other boxes, (boxes, arms), by own and common covariances with the bins."""
        residual = self._residual - np.einsum("kij,j->ki", self.information @ self._shift, self.mean)
        return np.asarray(own_covariance @ residual.T + (common_covariance @ self._weight)[:, None])

    def log_density_gain(self) -> float:
        """Return by how much the common part raises the logarithm of the observations' density."""
        determinant = np.linalg.slogdet(self._ratio)[1]
        return float(self._residual.sum(axis=0) @ self.mean / 2 - determinant / 2)


_USUAL_SPREAD: Final = 0.5
_LOG_LENGTH_DEVIATION: Final = 1.0
_LOG_SPREAD_DEVIATION: Final = 0.5
"""Lengths and spreads are log-normal beforehand, with usual medians and these standard deviations."""
_COMMON_PART_PENALTY: Final = 3.0
"""A common part must make what was observed more likely by this, in natural logarithms: where values are truly alike
in all arms it takes room that differences between them need."""
_N_SWEEPS: Final = 2


@dataclass(frozen=True)
class Observations:
    """Independent normal observations of arms' values: of averages over bins, and over unions of bins."""

    # lower, upper: shape (bins, d): corners
    lower: Array
    upper: Array
    information: Array  # shape (arms, bins, bins): precision matrices of the observations
    weighted: Array  # shape (arms, bins): what they observed, times its precision

    def posterior(self, kernel: Kernel) -> tuple[Array, Array]:
        """Return means and variances of the bins' averages, shape (bins, arms) each.

        Where arms have a common part the variances are those without it: choices depend on differences alone.
        """
        covariances = self.covariances(kernel)
        if kernel.common:
            part = self._common_part(kernel, covariances)
            return part.means(), part.variances_without_common_part()
        means = np.einsum("kij,kj->ik", covariances, self.weighted)
        return means, np.diagonal(covariances, axis1=1, axis2=2).T

    def variances_with_common_part(self, kernel: Kernel) -> Array:
        """Return variances of the bins' averages, the common part's included, shape (bins, arms)."""
        covariances = self.covariances(kernel)
        if kernel.common:
            return self._common_part(kernel, covariances).variances()
        return np.diagonal(covariances, axis1=1, axis2=2).T

    def covariances(self, kernel: Kernel) -> Array:
        """Return posterior covariances of arms' values without a common part, or if it is known; (arms, bins, bins)."""
        return self._own_posterior(kernel.covariance(self.lower, self.upper))[0]

    def _own_posterior(self, covariance: Array) -> tuple[Array, float]:
        """Return posterior covariances under a prior covariance, and the log ratio of its determinant to theirs.

        No covariance is inverted: of one that is nearly singular few digits would be left.
        """
        ratio = np.eye(len(covariance)) + covariance @ self.information
        return np.asarray(np.linalg.solve(ratio, covariance), np.float64), float(np.linalg.slogdet(ratio)[1].sum())

    def _common_part(self, kernel: Kernel, covariances: Array, factors: Factors | None = None) -> CommonPart:
        covariance = kernel.common_covariance(self.lower, self.upper, factors)
        return CommonPart(covariances, self.information, self.weighted, covariance)

    def predict_boxes(self, kernel: Kernel, lower: Array, upper: Array) -> Array:
        """Return posterior means of averages over other boxes, by their corners; shape (boxes, arms)."""
        n_bins = len(self.lower)
        boxes = np.concatenate([self.lower, lower]), np.concatenate([self.upper, upper])
        covariance = kernel.covariance(*boxes)
        own_posterior, _ = self._own_posterior(covariance[:n_bins, :n_bins])
        if kernel.common:
            common_covariance = kernel.common_covariance(*boxes)
            part = CommonPart(own_posterior, self.information, self.weighted, common_covariance[:n_bins, :n_bins])
            return part.predict_boxes(covariance[n_bins:, :n_bins], common_covariance[n_bins:, :n_bins])
        means = own_posterior @ self.weighted[..., None]
        residual = self.weighted - (self.information @ means)[..., 0]
        return np.asarray(covariance[n_bins:, :n_bins] @ residual.T)

    def log_density(self, kernel: Kernel, factor_cache: Factors | None = None) -> float:
        """Return the log density of the observations, up to a constant, plus the log prior of the kernel."""
        covariance = kernel.covariance(self.lower, self.upper, factor_cache)
        own_posterior, determinant = self._own_posterior(covariance)
        squares = float(np.einsum("ki,kij,kj->", self.weighted, own_posterior, self.weighted))
        density = (squares - determinant) / 2 + _log_prior(kernel)
        if not kernel.common:
            return density
        return density + self._common_part(kernel, own_posterior, factor_cache).log_density_gain()

    def predictive_log_density(self, kernel: Kernel, precision: Array, moment: Array) -> float:
        """Return the log density of further observations of the first bins, given those present, up to a constant."""
        diagonal = np.arange(len(precision))
        information, weighted = self.information.copy(), self.weighted.copy()
        information[:, diagonal, diagonal] += precision.T
        weighted[:, diagonal] += moment.T
        factor_cache: Factors = {}
        updated = Observations(self.lower, self.upper, information, weighted)
        return updated.log_density(kernel, factor_cache) - self.log_density(kernel, factor_cache)

    def with_others(self, other: "Observations") -> "Observations":
        """Return these observations and others of the same values, of further bins."""
        n_own, n_total = len(self.lower), len(self.lower) + len(other.lower)
        information = np.zeros((len(self.information), n_total, n_total))
        information[:, :n_own, :n_own] = self.information
        information[:, n_own:, n_own:] = other.information
        lower, upper = np.concatenate([self.lower, other.lower]), np.concatenate([self.upper, other.upper])
        return Observations(lower, upper, information, np.concatenate([self.weighted, other.weighted], axis=1))

    def fit_kernel(self, start: Kernel) -> Kernel:
        """Return the kernel of the largest posterior density near ``start``, feature by feature on the grids."""
        factor_cache: Factors = {}
        best, value = start, self.log_density(start, factor_cache)
        for _ in range(_N_SWEEPS):
            previous = best
            for move in range(2 * (len(start.lengths) + 1)):
                best, value = self._climb_log_density(best, value, move, factor_cache)
            if best is previous:
                break
        return best

    def _climb_log_density(self, best: Kernel, value: float, move: int, factor_cache: Factors) -> tuple[Kernel, float]:
        """Return the last kernel in a direction on the grids whose log density rises, and this log density."""
        while (step := _find_neighbour_kernel(best, move)) is not None:
            log_density = self.log_density(step, factor_cache)
            if log_density <= value:
                break
            best, value = step, log_density
        return best, value


def observe_bins(lower: Array, upper: Array, precision: Array, moment: Array) -> Observations:
    """Return independent observations of bins, by their corners; precision and moment (bins, arms)."""
    information = np.zeros((precision.shape[1], len(precision), len(precision)))
    diagonal = np.arange(len(precision))
    information[:, diagonal, diagonal] = precision.T
    return Observations(lower, upper, information, moment.T)


def _find_neighbour_kernel(kernel: Kernel, move: int) -> Kernel | None:
    """Return the neighbouring kernel on the grids of a feature's length or the spread; None beyond the ends."""
    index, step = move // 2, 1 - 2 * (move % 2)
    if index == len(kernel.lengths):
        spread = kernel.spread + step
        return replace(kernel, spread=spread) if 0 <= spread < len(SPREADS) else None
    lengths = kernel.lengths + step * (np.arange(len(kernel.lengths)) == index)
    return replace(kernel, lengths=lengths) if 0 <= lengths[index] < len(LENGTHS) else None


def _log_prior(kernel: Kernel) -> float:
    lengths = np.log(LENGTHS[kernel.lengths] / LENGTHS[kernel.usual_lengths]) / _LOG_LENGTH_DEVIATION
    spread = np.log(SPREADS[kernel.spread] / _USUAL_SPREAD) / _LOG_SPREAD_DEVIATION
    return -float((lengths**2).sum() + spread**2) / 2 - (_COMMON_PART_PENALTY if kernel.common else 0.0)


_MIN_TELLING_LEVEL: Final = 0.2
"""A level nearer to 0 than this does not tell how many people are in a bin: what they add up to is nearly 0 anyway."""
_WARNING_PROBABILITY: Final = 0.5
_PRIOR_ODDS_WHILE_ASKING: Final = 1 / 50
"""Odds beforehand that arms differ by the same for everybody, in rounds: what their coins do not ask is not learned.
At even odds a few hundred people who report by chance as if it were so keep it so for thousands."""
_CROWDING_BOUNDS: Final = (0.05, 10.0)
"""A bin is taken to have this many times the people that are expected, at least and at most."""


@dataclass(frozen=True)
class ContextFreeArms:
    """The posterior of values if arms differ by the same for all contexts."""

    probability: float  # that they do, where it is as likely as not before anybody reported: last policies go by it
    # mean, variance: shape (boxes, arms): values then, of bins and of other boxes that were observed, in this order;
    # variances are those without what all arms have in common
    mean: Array
    variance: Array

    @classmethod
    def from_observations(cls, observations: Observations, kernel: Kernel, prior: PriorScale) -> "ContextFreeArms":
        """Return the model, compared by likelihood with that of ``kernel`` and ``prior``.

        Both have a common part here, so that wrong shares of people speak for neither. Where a bin has more people than
        expected, arms differ by more in what is observed; values that are far from 0 tell how many people there are.
        """
        kernels = [ConstantKernel(kernel.lengths, kernel.spread, kernel.space)]
        if abs(prior.level) > _MIN_TELLING_LEVEL:
            values = prior.level + prior.scale * observations.posterior(kernels[0])[0].mean(axis=1)
            kernels.append(replace(kernels[0], crowding=np.clip(values / prior.level, *_CROWDING_BOUNDS)))
        likelihoods = [observations.log_density(candidate) for candidate in kernels]
        likelier = int(np.argmax(likelihoods))
        odds = likelihoods[likelier] - observations.log_density(replace(kernel, common=True))
        mean, variance = observations.posterior(kernels[likelier])
        return cls(float(expit(odds)), prior.level + prior.scale * mean, prior.scale**2 * variance)

    @property
    def probability_while_asking(self) -> float:
        """The probability of the model during rounds, with small prior odds."""
        odds = _PRIOR_ODDS_WHILE_ASKING * self.probability
        return odds / (odds + 1 - self.probability)

    def averaged(self, mean: Array, is_asking: bool) -> Array:
        """Return the means of bins under both models, (bins, arms); ``mean`` is that of the current kernel.

        ``is_asking`` is whether they are for a round, whose reports can still correct them, or for a last policy.
        """
        probability = self.probability_while_asking if is_asking else self.probability
        return np.asarray(probability * self.mean[: len(mean)] + (1 - probability) * mean)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if this model is the likelier one and the last policy uses it."""
        if self.probability <= _WARNING_PROBABILITY:
            return ()
        return (
            "reports do not show that contexts matter: one option is best for everybody with probability "
            f"{self.probability:.2f}, and the last policy goes by that",
        )
