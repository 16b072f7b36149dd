"""Observations of averages over bins, and the Gaussian process regression of arms' values on them."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.partition.kernel import LENGTHS, SPREADS, Factors, Kernel
from privateer_server.algorithms.partition.posterior.common_part import CommonPart

Array = NDArray[np.float64]

_USUAL_SPREAD: Final = 0.5
_LENGTH_SPREAD: Final = 1.0
_SPREAD_SPREAD: Final = 0.5
"""Lengths and spreads are log-normal beforehand, with usual medians and these standard deviations."""
_COMMON: Final = 3.0
"""A common part must make what was observed more likely by this, in natural logarithms: where values are truly alike
in all arms it takes room that differences between them need."""
_SWEEPS: Final = 2


@dataclass(frozen=True)
class Observations:
    """Independent normal observations of arms' values: of averages over bins, and over unions of bins."""

    # lower, upper: shape (bins, d): corners
    lower: Array
    upper: Array
    information: Array  # shape (arms, bins, bins): precision matrices of the observations
    weighted: Array  # shape (arms, bins): what they observed, times its precision

    def posterior(self, kernel: Kernel) -> tuple[Array, Array]:
        """Means and variances of the bins' averages, shape (bins, arms) each.

        Where arms have a common part the variances are those without it: choices depend on differences alone.
        """
        known = self.covariances(kernel)
        if kernel.common:
            part = self._common_part(kernel, known)
            return part.means(), part.variances_apart()
        means = np.einsum("kij,kj->ik", known, self.weighted)
        return means, np.diagonal(known, axis1=1, axis2=2).T

    def variances(self, kernel: Kernel) -> Array:
        """Variances of the bins' averages, the common part's included, shape (bins, arms)."""
        known = self.covariances(kernel)
        if kernel.common:
            return self._common_part(kernel, known).variances()
        return np.diagonal(known, axis1=1, axis2=2).T

    def covariances(self, kernel: Kernel) -> Array:
        """Return posterior covariances of arms' values without a common part, or if it is known; (arms, bins, bins)."""
        return self._alone(kernel.covariance(self.lower, self.upper))[0]

    def _alone(self, covariance: Array) -> tuple[Array, float]:
        """Return these of a covariance beforehand, and the logarithm of its determinant to theirs.

        No covariance is inverted: of one that is nearly singular few digits would be left.
        """
        ratio = np.eye(len(covariance)) + covariance @ self.information
        return np.asarray(np.linalg.solve(ratio, covariance), np.float64), float(np.linalg.slogdet(ratio)[1].sum())

    def _common_part(self, kernel: Kernel, known: Array, factors: Factors | None = None) -> CommonPart:
        covariance = kernel.common_covariance(self.lower, self.upper, factors)
        return CommonPart(known, self.information, self.weighted, covariance)

    def elsewhere(self, kernel: Kernel, lower: Array, upper: Array) -> Array:
        """Return posterior means of averages over other boxes, by their corners; shape (boxes, arms)."""
        own = len(self.lower)
        boxes = np.concatenate([self.lower, lower]), np.concatenate([self.upper, upper])
        covariance = kernel.covariance(*boxes)
        alone, _ = self._alone(covariance[:own, :own])
        if kernel.common:
            common = kernel.common_covariance(*boxes)
            part = CommonPart(alone, self.information, self.weighted, common[:own, :own])
            return part.elsewhere(covariance[own:, :own], common[own:, :own])
        means = alone @ self.weighted[..., None]
        residual = self.weighted - (self.information @ means)[..., 0]
        return np.asarray(covariance[own:, :own] @ residual.T)

    def likelihood(self, kernel: Kernel, known: Factors | None = None) -> float:
        """Return the logarithm of the observations' density, but for a constant, plus that of the kernel beforehand."""
        covariance = kernel.covariance(self.lower, self.upper, known)
        alone, determinant = self._alone(covariance)
        squares = float(np.einsum("ki,kij,kj->", self.weighted, alone, self.weighted))
        found = (squares - determinant) / 2 + _plausibility(kernel)
        return found + (self._common_part(kernel, alone, known).likelihood() if kernel.common else 0.0)

    def predicted(self, kernel: Kernel, precision: Array, moment: Array) -> float:
        """Return the log density of further observations of the bins, but for a constant that is theirs alone.

        precision, moment (bins, arms): the precision of what is observed of the first bins, and that times the
            observation.
        """
        size = np.arange(len(precision))
        information, weighted = self.information.copy(), self.weighted.copy()
        information[:, size, size] += precision.T
        weighted[:, size] += moment.T
        known: Factors = {}
        after = Observations(self.lower, self.upper, information, weighted)
        return after.likelihood(kernel, known) - self.likelihood(kernel, known)

    def with_others(self, other: "Observations") -> "Observations":
        """Return these observations and others of the same values, of further bins."""
        own, all_ = len(self.lower), len(self.lower) + len(other.lower)
        information = np.zeros((len(self.information), all_, all_))
        information[:, :own, :own] = self.information
        information[:, own:, own:] = other.information
        return Observations(
            np.concatenate([self.lower, other.lower]),
            np.concatenate([self.upper, other.upper]),
            information,
            np.concatenate([self.weighted, other.weighted], axis=1),
        )

    def fitted(self, start: Kernel) -> Kernel:
        """Return the most likely kernel near ``start``, feature by feature on the grids."""
        known: Factors = {}
        best, value = start, self.likelihood(start, known)
        for _ in range(_SWEEPS):
            before = best
            for move in range(2 * (len(start.lengths) + 1)):
                best, value = self._climbed(best, value, move, known)
            if best is before:
                break
        return best

    def _climbed(self, best: Kernel, value: float, move: int, known: Factors) -> tuple[Kernel, float]:
        while (step := _moved(best, move)) is not None:
            reached = self.likelihood(step, known)
            if reached <= value:
                break
            best, value = step, reached
        return best, value


def observed(lower: Array, upper: Array, precision: Array, moment: Array) -> Observations:
    """Return independent observations of bins, by their corners; precision and moment (bins, arms)."""
    information = np.zeros((precision.shape[1], len(precision), len(precision)))
    size = np.arange(len(precision))
    information[:, size, size] = precision.T
    return Observations(lower, upper, information, moment.T)


def _moved(kernel: Kernel, move: int) -> Kernel | None:
    """Return the neighbour on the grids, up or down along a feature's length or the spread; none beyond the ends."""
    which, by = move // 2, 1 - 2 * (move % 2)
    if which == len(kernel.lengths):
        spread = kernel.spread + by
        return replace(kernel, spread=spread) if 0 <= spread < len(SPREADS) else None
    lengths = kernel.lengths + by * (np.arange(len(kernel.lengths)) == which)
    return replace(kernel, lengths=lengths) if 0 <= lengths[which] < len(LENGTHS) else None


def _plausibility(kernel: Kernel) -> float:
    lengths = np.log(LENGTHS[kernel.lengths] / LENGTHS[kernel.usual]) / _LENGTH_SPREAD
    spread = np.log(SPREADS[kernel.spread] / _USUAL_SPREAD) / _SPREAD_SPREAD
    return -float((lengths**2).sum() + spread**2) / 2 - (_COMMON if kernel.common else 0.0)
