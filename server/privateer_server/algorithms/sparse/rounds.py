"""What the learners under all trust models share: whose turn it is, and what an operator may change."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse.policy import SparsePolicy
from privateer_core.algorithms.sparse.spec import SparseSpec
from privateer_core.answer.facts import Table
from privateer_core.errors import SpecError
from privateer_core.primitives.questions import ScreenedSum
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.sparse.foresight import check_first_round, foreseen

Array = NDArray[np.float64]
StateT = TypeVar("StateT")


class SparseLearner(RoundsLearner[SparseSpec, StateT, SparsePolicy]):
    """The schedule, which the spec fixes."""

    same = ("algorithm", "experiment.arms", "experiment.retired", "context", "reward", "privacy.model")

    @override
    def start(self, seed: int) -> StateT:
        check_first_round(self.spec)
        return self.blank()

    @abstractmethod
    def blank(self) -> StateT:
        """Return the state before any report."""

    @abstractmethod
    def decided(self, state: StateT) -> Mapping[str, Any]:
        """Return what a policy has of a state: ``places``, ``coefficients`` and ``intercepts``."""

    @abstractmethod
    def asked(self, state: StateT, seed: int) -> tuple[NDArray[np.int64], ScreenedSum]:
        """Return the features that the next round asks about, and the question."""

    @override
    def policy(self, state: StateT, ahead: NewRound) -> SparsePolicy:
        """Return the policy of a round: it explores as long as nothing is known."""
        known = self.decided(state)
        asked, question = self.asked(state, ahead.seed)
        return SparsePolicy(
            version=ahead.version,
            asked=asked,
            playable=np.array(self.spec.playable),
            explores=not (known["coefficients"].any() or known["intercepts"].any()),
            seed=ahead.seed,
            terms=self.terms(ahead, question),
            **known,
        )

    @override
    def rearmed(self, state: StateT, before: SparseSpec) -> StateT:
        """Return the state: arms may go."""
        if self.spec.arm_count > before.arm_count:
            detail = "nothing is known of the features of another arm"
            remedy = (
                "create another experiment with it, which may begin with this one's coefficients in its application"
            )
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        return state

    def foreseen(self, waiting: float = 0.0) -> tuple[Table, ...]:
        """Return how small coefficients may be to be found, by the number of features."""
        del waiting
        return foreseen(self.spec)


def in_ball(values: Array, intercepts: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts by which no prediction leaves the range of rewards: shrunk if they must be."""
    most = float(np.abs(intercepts).max() + np.abs(values).sum())
    return (values, intercepts) if most <= 1 else (values / most, intercepts / most)
