"""Learns from residuals times whitened directions: the default."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.primitives.contributions import VectorSums
from privateer_server.algorithms.linear.again import Heard, Recent, Said
from privateer_server.algorithms.linear.contexts import frame
from privateer_server.algorithms.linear.posterior import Posterior, posterior
from privateer_server.algorithms.linear.rounds import LinearLearner, LinearState
from privateer_server.algorithms.linear.running import Known
from privateer_server.algorithms.linear.surrogate import PEOPLE, slopes

Array = NDArray[np.float64]
_SURE: Final = 0.01
"""The least doubt about slopes."""
_AGAIN: Final = 1 << 13
"""People drawn for a round that is read again."""
LEAST: Final = 1e-3
"""Variance of what people say of an arm, if none would be seen to play it."""


class ResidualLearner(LinearLearner):
    """Regression on means of residuals, whose slopes follow from second moments of contexts (`surrogate.slopes`)."""

    def moments(self, state: LinearState) -> Array:
        """Return second moments of contexts: told ones and assumed ones, by their precisions."""
        return self.contexts.moments(self.contexts.features(state.moments, state.precision))

    def doubt(self, state: LinearState) -> float:
        """Return the square of how far slopes may be off, relative to what they are: as far as second moments are."""
        return min(1.0, max(_SURE, self.contexts.features(state.moments, state.precision).doubt))

    def posterior(self, state: LinearState) -> Posterior:
        """Return what is known of parameters."""
        return posterior(state.information, state.scores, self.link.scale, frame(self.moments(state)))

    @override
    def known(self, state: LinearState) -> tuple[Array, Array]:
        found = self.posterior(state)
        return self.centre() + found.means, found.covariances

    @override
    def matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return what makes directions, longest in features that are doubted, and what tells of second moments."""
        return self._doubted(state), self.contexts.telling

    def _doubted(self, state: LinearState) -> Array:
        """Return what makes features of variance 1, times the standard deviation of what is known of their slopes.

        A vector's length is shared out among its coordinates, and noise is the same on all: so most of it goes where
        least is known.
        """
        made = frame(self.moments(state))
        back = np.linalg.inv(made)
        variances = np.einsum("ij,kjl,il->i", back, self.posterior(state).covariances, back)
        return np.asarray(made * np.sqrt(variances / variances.max()))

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        """Return the state after a round's release: what it tells of second moments counts for its slopes, too.

        And for those of the latest rounds, which are read again: what residuals say depends on how contexts spread.
        Were they taken for what they seemed to say at first, a posterior would be surest where its matrices were off.
        """
        parts = release.sums.reshape(policy.classes, -1)
        after = self._told(state, policy, parts, release)
        latest = Heard(policy, parts[:, : policy.means.size], release.reports, release.noise)
        recent = state.recent or Recent(state.information, state.scores)
        said = [self._said(after, one, _AGAIN) for one in recent.rounds] + [self._said(after, latest, PEOPLE)]
        recent, (information, scores) = recent.read([*recent.rounds, latest], said)
        heard = state.heard + release.reports
        return replace(after, heard=heard, information=information, scores=scores, recent=recent)

    def _said(self, state: LinearState, heard: Heard, drawn: int) -> Said:
        """Return what a round's residuals say of parameters, by what is known of contexts; so many people are drawn."""
        policy = heard.policy
        found = slopes(policy, self.moments(state), drawn)
        classes, arms, d, _ = found.matrices.shape
        people = heard.reports / classes
        share = 1 - policy.share
        means = heard.sums.reshape(classes, arms, d) / (people * math.sqrt(share))
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        expected = np.einsum("ckij,kjl,ckil->ck", found.matrices, covariances, found.matrices) / d
        alike = heard.noise / (share * people**2) + LEAST / (d * people) + self.doubt(state) * expected
        precision = np.linalg.inv(alike[..., None, None] * np.eye(d) + found.spreads / people)
        before = policy.means - self.centre()
        observed = means - found.offsets + np.einsum("ckij,kj->cki", found.matrices, before)
        weighed = np.einsum("ckji,ckjl->ckil", found.matrices, precision)
        information = np.einsum("ckij,ckjl->kil", weighed, found.matrices)
        scores = np.einsum("ckij,ckj->ki", weighed, observed)
        return information, scores

    def _told(self, state: LinearState, policy: LinearPolicy, parts: Array, release: VectorSums) -> LinearState:
        """Count in what people told of second moments: their own spread is about 1, and noise comes to it."""
        if not policy.share:
            return state
        noise, told = release.noise * policy.classes, parts[:, policy.means.size :].sum(axis=0)
        return replace(state, **self.telling(state, told, release.reports, noise, policy.share))

    def telling(self, known: Known, told: Array, people: int, noise: float, share: float) -> dict[str, Any]:
        """Return moments and precision with what people told, in sum; ``noise`` is its variance in a coordinate."""
        moments, precision = self.contexts.told(told, people, noise, share)
        return {"moments": known.moments + moments, "precision": known.precision + precision}
