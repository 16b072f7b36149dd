"""What learns upper confidence bounds: means of every arm in every bin, and how far they may be off."""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.ucb import UcbPolicy, UcbSpec
from privateer_core.arrays import Array
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms import NewRound, RoundsLearner


@dataclass(frozen=True)
class UcbState:
    """People who reported, and the sum of all rounds' `CellHits.estimates`, (3, arms * bins)."""

    reported: int
    totals: Array


class UcbLearner(RoundsLearner[UcbSpec, UcbState, UcbPolicy]):
    """Adds up what is released, and gives every bin the arm of the highest bound."""

    state_type = UcbState
    publishes_result = False

    @override
    def start(self, seed: int) -> UcbState:
        return UcbState(0, np.zeros((3, self.spec.arm_count * self.spec.bins.count)))

    @override
    def policy(self, state: UcbState, next_round: NewRound) -> UcbPolicy:
        """Return the highest upper bounds; at the end, without further reports, the highest lower bounds."""
        people, scores, variances = state.totals.reshape(3, self.spec.arm_count, -1)
        deviations = np.sqrt(1 + variances)
        people = np.maximum(people, deviations)
        reach = np.sqrt(2 * np.log(2 + state.reported)) * (1 if next_round.batch_size else -1)
        bounds = np.clip(scores / people, -1.0, 1.0) + reach * deviations / people
        bounds[~np.array(self.spec.playable)] = -np.inf
        terms = self.calibrate_terms(next_round, self.spec.typical_question(next_round.seed))
        return UcbPolicy(next_round.version, self.spec.bins, bounds.argmax(axis=0), terms)

    @override
    def learn(self, state: UcbState, policy: UcbPolicy, release: CellHits) -> UcbState:
        return UcbState(state.reported + release.reports, state.totals + release.estimates()[:, :, 0])
