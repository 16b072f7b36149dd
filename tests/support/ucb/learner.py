"""What learns upper confidence bounds: means of every arm in every bin, and how far they may be off."""

from dataclasses import dataclass

import numpy as np
from privateer_core.algorithms.ucb import UcbPolicy, UcbSpec
from typing_extensions import override

from privateer_core.policies.policy import Array
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms import NewRound, RoundsLearner


@dataclass(frozen=True)
class UcbState:
    """People who reported, and of every bin and arm, (bins * arms,): people, the sum of their scores, its variance.

    A score is 1 for the highest reward and -1 for the lowest.
    """

    reported: int
    people: Array
    scores: Array
    variances: Array


class UcbLearner(RoundsLearner[UcbSpec, UcbState, UcbPolicy]):
    """Adds up what is released, and gives every bin the arm of the highest bound."""

    state_type = UcbState
    publishes_result = False

    @override
    def start(self, seed: int) -> UcbState:
        nothing = np.zeros(self.spec.usual_question().layout.keys)
        return UcbState(0, nothing, nothing, nothing + 1)

    @override
    def policy(self, state: UcbState, ahead: NewRound) -> UcbPolicy:
        """Return the highest upper bounds; at the end, where nobody is asked, the highest lower ones."""
        deviations = np.sqrt(state.variances)
        people = np.maximum(state.people, deviations)
        reach = np.sqrt(2 * np.log(2 + state.reported)) * (1 if ahead.batch else -1)
        bounds = np.clip(state.scores / people, -1.0, 1.0) + reach * deviations / people
        shape = (*[self.spec.algorithm.bins] * self.spec.dimension, self.spec.arm_count)
        table = np.where(self.spec.playable, bounds.reshape(shape), -np.inf).argmax(axis=-1)
        return UcbPolicy(ahead.version, table, self.terms(ahead, self.spec.usual_question(ahead.seed)))

    @override
    def learn(self, state: UcbState, policy: UcbPolicy, release: CellHits) -> UcbState:
        hits, sums = release.hits[:, 0], release.sums[:, 0]
        people = state.people + (hits - release.hit_other * release.reports) / release.gain
        variances = state.variances + (np.maximum(hits, 0.0) + 2 * release.noise) / release.gain**2
        return UcbState(state.reported + release.reports, people, state.scores + sums / release.gain, variances)


def learner(spec: UcbSpec) -> UcbLearner:
    """Return the learner of a spec."""
    return UcbLearner(spec)
