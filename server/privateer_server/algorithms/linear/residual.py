"""Learns from residuals times whitened directions: the default."""

import math
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.linear.policy import LinearPolicy
from privateer.algorithms.linear.reports import Asks, matrix_of
from privateer.contributions import VectorSums
from privateer_server.algorithms.linear.posterior import Posterior, posterior
from privateer_server.algorithms.linear.rounds import LinearState, Rounds
from privateer_server.algorithms.linear.surrogate import root, slopes

Array = NDArray[np.float64]
_TELL: Final = 0.1
"""Share of people who tell second moments."""
_WIDE: Final = 2.0
"""Squared length to which whitened rows are cut when they tell second moments, by their dimension."""
_ASSUMED: Final = 0.25
"""Variance of a second moment of whitened rows, before anybody tells."""
_VARIANCE: Final = 0.6
"""Variance of a residual's factor, at most about so much."""


class ResidualLearner(Rounds):
    """Regression on means of residuals, whose slopes follow from second moments of contexts (`surrogate.slopes`)."""

    def asks(self, state: LinearState) -> Asks:
        """Return second moments until a share of people have told them."""
        tell = self.spec.learns_moments and state.told <= _TELL * state.heard
        return "moments" if tell else "residual"

    def batch(self, state: LinearState, asks: Asks) -> int:
        """Return the people of the next round; a tenth of those so far tell second moments."""
        batch = super().batch(state, asks)
        if asks == "residual":
            return batch
        least = self.spec.privacy.min_batch if self.spec.privacy.trust.batched else 1
        return min(batch, max(least, self.spec.experiment.round_size // 2, math.ceil(_TELL * state.heard)))

    def moments(self, state: LinearState) -> Array:
        """Return second moments of contexts: told ones and assumed ones, by their precisions."""
        d = self.design.dimension
        whitened = (state.moments + np.eye(d) / _ASSUMED) / (state.precision + 1 / _ASSUMED)
        back = root(self.assumed, 0.5)
        found = back @ whitened @ back
        return np.asarray(found / found[0, 0])

    def posterior(self, state: LinearState) -> Posterior:
        """Return what is known of parameters."""
        return posterior(state.information, state.scores, self.link.scale)

    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return means and covariances of parameters."""
        found = self.posterior(state)
        return self.centre() + found.means, found.covariances

    def whitening(self, state: LinearState, asks: Asks) -> Array:
        """Return the inverse root of second moments; of the assumed ones, and shorter, where others are asked for."""
        if asks == "moments":
            return root(self.assumed, -0.5) / math.sqrt(_WIDE * self.design.dimension)
        return root(self.moments(state), -0.5)

    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        """Return the state after a round's release."""
        if policy.asks == "moments":
            return self._told(state, release)
        found = slopes(policy, self.moments(state))
        classes, arms, d, _ = found.matrices.shape
        people = release.reports / classes
        means = release.sums.reshape(classes, arms, d) / people
        precision = 1 / (release.noise / people**2 + _VARIANCE / (d * people))
        before = policy.means - self.centre()
        observed = means - found.offsets + np.einsum("ckij,kj->cki", found.matrices, before)
        information = precision * np.einsum("ckij,ckil->kjl", found.matrices, found.matrices)
        scores = precision * np.einsum("ckij,cki->kj", found.matrices, observed)
        return replace(
            state,
            heard=state.heard + release.reports,
            information=state.information + information,
            scores=state.scores + scores,
        )

    def _told(self, state: LinearState, release: VectorSums) -> LinearState:
        """Count in what people told of second moments: their own spread is about 1, and noise comes to it."""
        d, people = self.design.dimension, release.reports
        wide = _WIDE * d
        told = wide * matrix_of(release.sums / people, d)
        precision = 1 / (wide**2 * release.noise / people**2 + 1 / people)
        return replace(
            state,
            heard=state.heard + people,
            told=state.told + people,
            moments=state.moments + precision * told,
            precision=state.precision + precision,
        )
