"""Learns from residuals where rounds do not grow: from their sum, whose noise hardly does either."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.primitives.contributions import RunningSums, VectorSums
from privateer_server.algorithms.linear.residual import LEAST, ResidualLearner
from privateer_server.algorithms.linear.rounds import LinearState
from privateer_server.algorithms.linear.running import Running
from privateer_server.algorithms.linear.surrogate import slopes

Array = NDArray[np.float64]


class ContinualLearner(ResidualLearner):
    """Takes the rounds since noise began anew as one observation; by itself each would have too much noise."""

    @override
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        if not isinstance(release, RunningSums):
            return super().learn(state, policy, release)
        begun = state.running if state.running and release.step > 1 else Running.begun(state)
        own = policy.means.size
        told = begun.told + release.sums[own:]
        people = begun.people + release.reports
        known = replace(state, **self.telling(begun.before, told, people, release.noise, policy.share))
        running = replace(self._run_on(begun, known, policy, release), told=told, people=people)
        information, scores = running.evidence(release.noise / (1 - policy.share))
        return replace(
            known,
            heard=state.heard + release.reports,
            information=information,
            scores=scores,
            running=running,
            recent=None,
        )

    def _run_on(self, begun: Running, known: LinearState, policy: LinearPolicy, release: RunningSums) -> Running:
        """Return the sums with a round's residuals counted in."""
        found, people = slopes(policy, self.moments(known)), release.reports
        arms, d = policy.means.shape
        sums = release.sums[: policy.means.size].reshape(arms, d) / math.sqrt(1 - policy.share)
        matrices = found.matrices[0]
        before = np.einsum("kij,kj->ki", matrices, policy.means - self.centre())
        covariances = policy.factors @ policy.factors.transpose(0, 2, 1)
        expected = np.einsum("kij,kjl,kil->k", matrices, covariances, matrices) / d
        return replace(
            begun,
            matrices=begun.matrices + people * matrices,
            observed=begun.observed + sums + people * (before - found.offsets[0]),
            spread=begun.spread + people * (np.trace(found.spreads[0], axis1=1, axis2=2) + LEAST) / d,
            doubt=begun.doubt + people * np.sqrt(self.doubt(known) * expected),
        )
