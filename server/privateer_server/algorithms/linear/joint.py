"""Learns from joint reports of second moments and products, as paper 2's Algorithm 5 does: the reference."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.reports import MATRIX, PRODUCT, matrix_of
from privateer_core.primitives.contributions import VectorSums
from privateer_server.algorithms.linear.rounds import LinearLearner, LinearState

Array = NDArray[np.float64]
_RIDGE: Final = 1.0


class JointLearner(LinearLearner):
    """Ridge regression on noisy second moments V and products u: theta = V^-1 u, with V's small eigenvalues raised.

    Eigenvalues of V below what noise alone has are raised to that, as they could be 0 or less (tau sqrt(2 d t) of a
    symmetric normal matrix with entries of standard deviation tau sqrt(t)).
    """

    @override
    def matrices(self, _state: LinearState) -> tuple[Array, Array]:
        """Return what makes rows at most 1 long."""
        scaled = np.eye(self.design.dimension) / self.design.length
        return scaled, scaled

    @override
    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return estimates, and the covariance that noise in the products gives them, in the rows' own lengths."""
        d, length = self.design.dimension, self.design.length
        noise = float(state.precision[0, 0])
        least = _RIDGE + math.sqrt(2 * d * noise) / MATRIX
        values, vectors = np.linalg.eigh(state.information)
        inverse = np.einsum("kij,kj,klj->kil", vectors, 1 / np.maximum(values, least), vectors)
        # Products are with 2 reward - 1; parameters are of the reward, and of rows that are not divided by a length.
        estimates = np.einsum("kij,kj->ki", inverse, state.scores) / (2 * length)
        spread = noise / PRODUCT**2 * inverse @ inverse + inverse
        means = self.link.scale * estimates + self.centre()
        covariances = spread * (self.link.scale / (2 * length)) ** 2
        return means, np.asarray((covariances + covariances.transpose(0, 2, 1)) / 2)

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        arms, d = policy.means.shape
        sums = release.sums.reshape(arms, -1)
        pairs = sums.shape[1] - d
        grams = np.stack([matrix_of(one, d) for one in sums[:, :pairs]]) / MATRIX
        return replace(
            state,
            heard=state.heard + release.reports,
            information=state.information + grams,
            scores=state.scores + sums[:, pairs:] / PRODUCT,
            precision=state.precision + release.noise,
        )
