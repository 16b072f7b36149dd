"""What additive learners have in common: what they expect of people, and say of what they know."""

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact
from privateer_core.answer.parts import Figures
from privateer_core.answer.shapes import Shapes
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_server.algorithms import RoundsLearner
from privateer_server.algorithms.additive.cell_masses import CellMasses
from privateer_server.algorithms.additive.latest import Latest
from privateer_server.algorithms.additive.made_up_people import contexts_of
from privateer_server.algorithms.additive.observed_round import independent
from privateer_server.algorithms.additive.posterior import TermPosterior
from privateer_server.algorithms.additive.shape_functions import CellShares, shapes_of

Array = NDArray[np.float64]
StateT = TypeVar("StateT", bound=Any)


class TermsLearner(RoundsLearner[AdditiveSpec, StateT, AdditivePolicy]):
    """A learner of terms. Its states have ``reported``, and ``masses``: what is known of people by cell."""

    publishes_result = False
    same = ("algorithm", "experiment.arms", "experiment.retired", "context.features", "reward")

    def __init__(self, spec: AdditiveSpec) -> None:
        super().__init__(spec)
        self.questions = spec.questions
        self.cells = self.questions.cells
        self.shares: Latest[CellMasses, Array] = Latest(lambda masses: masses.means(self.cells))
        """What masses tell of the shares of people by cell, (terms,)."""

    @abstractmethod
    def posterior(self, state: StateT) -> TermPosterior:
        """Return what is known of terms."""

    @abstractmethod
    def statistics(self, state: StateT) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of all rounds."""

    @override
    def figures(self, state: StateT) -> dict[str, float]:
        """Return how far a mean reward may be off: standard deviation, averaged over arms and people."""
        people = independent(self.cells, self.shares(state.masses))
        spread = np.einsum("kij,ij->k", self.posterior(state).covariances, people)
        return {"uncertainty": float(np.sqrt(spread).mean())}

    @override
    def answer(self, state: StateT) -> Answer:
        if not state.reported:
            return self.answered(state)
        off = Fact("typical error of a mean reward", round(self.figures(state)["uncertainty"], 4), "number")
        return self.answered(state, parts=(self._shapes(state), Figures("what is known", (off,))))

    def _shapes(self, state: StateT) -> Shapes:
        known, masses = self.posterior(state), self.shares(state.masses)
        people = CellShares(self.cells, self.spec.features, masses)
        told = known.unshrunk(*self.statistics(state), self.cells, masses)
        playable = np.array(self.spec.playable)
        return shapes_of(known, told, people, self.spec.options, playable, self.spec.reward.span)

    @override
    def expected(self, state: StateT) -> ExpectedRewards | None:
        if not state.reported:
            return None
        known, reward = self.posterior(state), self.spec.reward
        covariances = known.covariances

        def rows(contexts: Array) -> Array:
            found = np.zeros((len(contexts), self.cells.count))
            found[:, 0] = 1.0
            np.put_along_axis(found, self.cells.locate(contexts), 1.0, axis=1)
            return found

        def at(contexts: Array) -> tuple[Array, Array]:
            x = rows(contexts)
            spreads = np.einsum("nd,kde,ne->nk", x, covariances, x, optimize=True)
            deviations = reward.span * np.sqrt(np.maximum(spreads, 0.0))
            return reward.unscaled(np.clip(x @ known.means.T, 0.0, 1.0)), deviations

        def deviation(contexts: Array, weights: Array) -> float:
            sums = weights.T @ rows(contexts)
            return reward.span * float(np.sqrt(max(0.0, np.einsum("kd,kde,ke->", sums, covariances, sums))))

        masses = self.shares(state.masses)

        def draw(places: Array) -> Array:
            return contexts_of(self.cells, masses, self.spec.dimension, places)

        return ExpectedRewards.everywhere(self.spec.dimension, at, deviation, draw)


def in_steps(values: Array) -> NDArray[np.int16]:
    """Return terms in whole steps; none is beyond 4."""
    return np.asarray(np.clip(np.rint(values / STEP), -32767, 32767), np.int16)
