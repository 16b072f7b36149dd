"""What sums over bins say about every arm's values, bin by bin, when values vary smoothly."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.partition.smoothness import LENGTHS, SPREADS, Smoothness

Array = NDArray[np.float64]

_USUAL_SPREAD: Final = 0.5
_LENGTH_SPREAD: Final = 1.0
_SPREAD_SPREAD: Final = 0.5
"""Lengths and spreads are log-normal beforehand, with usual medians and these standard deviations."""
_SWEEPS: Final = 2


@dataclass(frozen=True)
class Evidence:
    """Independent normal observations of arms' values: of averages over bins, and over unions of bins.

    Attributes
    ----------
    lower, upper
        Shape (bins, d): corners.
    information
        Shape (arms, bins, bins): precision matrices of the observations.
    weighted
        Shape (arms, bins): what they observed, times its precision.
    """

    lower: Array
    upper: Array
    information: Array
    weighted: Array

    def posterior(self, smoothness: Smoothness) -> tuple[Array, Array]:
        """Means and variances of the bins' averages, shape (bins, arms) each."""
        prior = np.linalg.inv(smoothness.covariance(self.lower, self.upper))
        known = np.linalg.inv(prior + self.information)
        means = np.einsum("kij,kj->ik", known, self.weighted)
        return means, np.diagonal(known, axis1=1, axis2=2).T

    def elsewhere(self, smoothness: Smoothness, lower: Array, upper: Array) -> Array:
        """Return posterior means of averages over other boxes, by their corners; shape (boxes, arms)."""
        own = len(self.lower)
        covariance = smoothness.covariance(np.concatenate([self.lower, lower]), np.concatenate([self.upper, upper]))
        known = np.linalg.inv(covariance[:own, :own])
        means = np.linalg.solve(known + self.information, self.weighted[..., None])
        residual = self.weighted - (self.information @ means)[..., 0]
        return np.asarray(covariance[own:, :own] @ residual.T)

    def likelihood(self, smoothness: Smoothness, known: dict[tuple[int, int], Array] | None = None) -> float:
        """Logarithm of the observations' density, but for a constant, plus that of the smoothness beforehand."""
        covariance = smoothness.covariance(self.lower, self.upper, known)
        factors = np.linalg.cholesky(np.linalg.inv(covariance) + self.information)
        solved = np.linalg.solve(factors, self.weighted[..., None])
        determinants = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum()
        prior = len(factors) * np.log(np.diagonal(np.linalg.cholesky(covariance))).sum()
        return float((solved**2).sum() / 2 - determinants - prior) + _plausibility(smoothness)

    def predicted(self, smoothness: Smoothness, precision: Array, moment: Array) -> float:
        """Logarithm of the density of further observations of the bins, but for a constant that is theirs alone.

        Parameters
        ----------
        precision, moment
            Shape (bins, arms): the precision of what is observed of the first bins, and that times the observation.
        """
        known = np.linalg.inv(smoothness.covariance(self.lower, self.upper)) + self.information
        size = np.arange(len(precision))
        more, weighted = known.copy(), self.weighted.copy()
        more[:, size, size] += precision.T
        weighted[:, size] += moment.T
        return _evidence(more, weighted) - _evidence(known, self.weighted)

    def beside(self, other: "Evidence") -> "Evidence":
        """Return this evidence and another about the same values, of further bins."""
        own, all_ = len(self.lower), len(self.lower) + len(other.lower)
        information = np.zeros((len(self.information), all_, all_))
        information[:, :own, :own] = self.information
        information[:, own:, own:] = other.information
        return Evidence(
            np.concatenate([self.lower, other.lower]),
            np.concatenate([self.upper, other.upper]),
            information,
            np.concatenate([self.weighted, other.weighted], axis=1),
        )

    def fitted(self, start: Smoothness) -> Smoothness:
        """The most likely smoothness near ``start``, feature by feature on the grids."""
        known: dict[tuple[int, int], Array] = {}
        best, value = start, self.likelihood(start, known)
        for _ in range(_SWEEPS):
            before = best
            for move in range(2 * (len(start.lengths) + 1)):
                best, value = self._climbed(best, value, move, known)
            if best is before:
                break
        return best

    def _climbed(
        self, best: Smoothness, value: float, move: int, known: dict[tuple[int, int], Array]
    ) -> tuple[Smoothness, float]:
        while (step := _moved(best, move)) is not None:
            reached = self.likelihood(step, known)
            if reached <= value:
                break
            best, value = step, reached
        return best, value


def observed(lower: Array, upper: Array, precision: Array, moment: Array) -> Evidence:
    """Return independent observations of bins, by their corners; precision and moment (bins, arms)."""
    information = np.zeros((precision.shape[1], len(precision), len(precision)))
    size = np.arange(len(precision))
    information[:, size, size] = precision.T
    return Evidence(lower, upper, information, moment.T)


def _evidence(precision: Array, weighted: Array) -> float:
    """What the density of normal observations depends on: of arms' precision matrices and weighted observations."""
    factors = np.linalg.cholesky(precision)
    solved = np.linalg.solve(factors, weighted[..., None])
    return float((solved**2).sum() / 2 - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum())


def _moved(smoothness: Smoothness, move: int) -> Smoothness | None:
    """The neighbour on the grids, up or down along a feature's length or the spread; none beyond the ends."""
    which, by = move // 2, 1 - 2 * (move % 2)
    if which == len(smoothness.lengths):
        spread = smoothness.spread + by
        return replace(smoothness, spread=spread) if 0 <= spread < len(SPREADS) else None
    lengths = smoothness.lengths + by * (np.arange(len(smoothness.lengths)) == which)
    return replace(smoothness, lengths=lengths) if 0 <= lengths[which] < len(LENGTHS) else None


def _plausibility(smoothness: Smoothness) -> float:
    lengths = np.log(LENGTHS[smoothness.lengths] / LENGTHS[smoothness.usual]) / _LENGTH_SPREAD
    spread = np.log(SPREADS[smoothness.spread] / _USUAL_SPREAD) / _SPREAD_SPREAD
    return -float((lengths**2).sum() + spread**2) / 2
