"""The learner of DP-DPE, with the paper's design, width and end."""

import math
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.phased import PhasedPolicy
from privateer_papers.paper_5.dp_dpe import DpDpePolicy
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.phased.learner import PhasedLearner, PhasedState, PhaseEstimate

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class DpDpeLearner(PhasedLearner):
    """Algorithm 1 with phases drawn without replacement; all actions are compared by eq. (3)."""

    gap = 2.0

    @override
    def policy(self, state: PhasedState, ahead: NewRound) -> DpDpePolicy:
        made = super().policy(state, ahead)
        return DpDpePolicy(**{one.name: getattr(made, one.name) for one in fields(made)})

    @override
    def _ending(self, state: PhasedState, support: Indices, plays: Indices, left: int) -> tuple[Indices, Indices]:
        """Return as much of the last phase as fits into the people who are left."""
        if len(state.active) == 1:
            return super()._ending(state, support, plays, left)
        cut = np.diff(np.cumsum(plays) * left // plays.sum(), prepend=0)
        return support[cut > 0], cut[cut > 0]

    @override
    def _keep(
        self, closed: int, policy: PhasedPolicy, people: int, _points: Array, values: Array, _estimate: PhaseEstimate
    ) -> NDArray[np.bool_]:
        """Keep actions by line 18, with W of eq. (3) and, as its proofs have it, sigma_n = 2 sigma_noise sqrt(d)."""
        dimension = self.actions.shape[1]
        length = self.spec.first_length * 2.0**closed
        rewards = self.spec.reward.half_range * math.sqrt(2 * dimension / (people * length))
        sampled = self.spec.algorithm.client_deviation / math.sqrt(people)
        noise = 2 * math.sqrt(policy.mechanism.spread(people)[0] * dimension)
        width = (rewards + sampled + noise) * math.sqrt(2 * self.log)
        return np.asarray(np.max(values) - values <= 2 * width)
