"""A part that the values of all arms have in common: a Gaussian process of its own, marginalized in closed form."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CommonPart:
    """The model v_k = c + d_k: arms' values are a common part c and parts of their own, all normal and independent.

    A sum of scores over a bin is the bin's share of people times a value. Where shares are unknown, and rewards are far
    from the middle of their range, a wrong share moves the values of all arms alike: c takes that up, and what is known
    of differences between arms stays what it is.

    With C the covariance of d_k, C_c that of c, L_k the precision matrix of the observations of arm k and w_k that
    times what was observed, P_k = (C^-1 + L_k)^-1 is the covariance of v_k if c is known, and
    B_k = P_k C^-1 = 1 - P_k L_k what c moves it by. Observations of v_k tell of c with precision
    S_k = (C + L_k^-1)^-1 = L_k - L_k P_k L_k, and h_k = w_k - L_k P_k w_k is S_k times what they find. So c has the
    precision Q = C_c^-1 + sum S_k and the mean Q^-1 sum h_k. No inverse of C_c is taken: it may be singular.
    """

    known: Array  # shape (arms, bins, bins): P_k
    # information, weighted: shapes (arms, bins, bins) and (arms, bins): L_k and w_k
    information: Array
    weighted: Array
    covariance: Array  # shape (bins, bins): C_c

    @cached_property
    def _moved(self) -> Array:
        """B_k, shape (arms, bins, bins)."""
        return np.asarray(np.eye(self.known.shape[1]) - self.known @ self.information)

    @cached_property
    def _residual(self) -> Array:
        """h_k, shape (arms, bins)."""
        alone = (self.known @ self.weighted[..., None])[..., 0]
        return np.asarray(self.weighted - np.einsum("kij,kj->ki", self.information, alone))

    @cached_property
    def _told(self) -> Array:
        """The sum of all S_k, shape (bins, bins)."""
        return np.asarray((self.information @ self._moved).sum(axis=0))

    @cached_property
    def _ratio(self) -> Array:
        """C_c Q, shape (bins, bins)."""
        return np.asarray(np.eye(len(self.covariance)) + self.covariance @ self._told)

    @cached_property
    def _weight(self) -> Array:
        """C_c^-1 times the mean of the common part, shape (bins,)."""
        return np.asarray(np.linalg.solve(self._ratio.T, self._residual.sum(axis=0)))

    @cached_property
    def mean(self) -> Array:
        """The common part's posterior mean, shape (bins,)."""
        return np.asarray(self.covariance @ self._weight)

    @cached_property
    def _uncertainty(self) -> Array:
        """Q^-1, shape (bins, bins)."""
        return np.asarray(np.linalg.solve(self._ratio, self.covariance))

    def means(self) -> Array:
        """Posterior means of arms' values, shape (bins, arms)."""
        alone = np.einsum("kij,kj->ik", self.known, self.weighted)
        return np.asarray(alone + np.einsum("kij,j->ik", self._moved, self.mean))

    def variances(self) -> Array:
        """Posterior variances of arms' values, shape (bins, arms)."""
        return np.asarray(np.diagonal(self.known, axis1=1, axis2=2).T + self._through(self._moved))

    def variances_apart(self) -> Array:
        """Posterior variances without what moves all arms alike, shape (bins, arms): those that choices depend on."""
        apart = self._moved - self._moved.mean(axis=0)
        return np.asarray(np.diagonal(self.known, axis1=1, axis2=2).T + self._through(apart))

    def _through(self, moved: Array) -> Array:
        """Return the diagonals of moved Q^-1 moved^T, shape (bins, arms)."""
        return np.asarray(np.einsum("kij,kij->ik", moved @ self._uncertainty, moved))

    def elsewhere(self, own: Array, common: Array) -> Array:
        """Return posterior means of averages over other boxes, shape (boxes, arms).

        own, common (boxes, bins): covariances of those with the bins, in an arm's own part and in the common one.
        """
        residual = self._residual - np.einsum("kij,j->ki", self.information @ self._moved, self.mean)
        return np.asarray(own @ residual.T + (common @ self._weight)[:, None])

    def likelihood(self) -> float:
        """Return by how much the common part raises the logarithm of the observations' density."""
        determinant = np.linalg.slogdet(self._ratio)[1]
        return float(self._residual.sum(axis=0) @ self.mean / 2 - determinant / 2)
