"""What the learners under all trust models share: whose turn it is, and what an operator may change."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.sparse.policy import SparsePolicy
from privateer_core.algorithms.sparse.spec import SparseSpec
from privateer_core.answer.tables import Table
from privateer_core.errors import SpecError
from privateer_core.questions import ScreenedSum
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step, must_agree
from privateer_server.algorithms.sparse.foresight import check_first_round, foreseen

Array = NDArray[np.float64]
_THE_SAME: Final = ("algorithm", "experiment.arms", "experiment.retired", "context", "reward")


class Rounds(ABC):
    """The schedule, which the spec fixes."""

    repeats: ClassVar[bool] = False
    publishes_result: ClassVar[bool] = True
    growth: ClassVar[tuple[str, str]] = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: SparseSpec) -> None:
        self.spec = spec

    def start(self, _seed: int) -> Any:
        """Return the state before any report.

        Raises
        ------
        SpecError
            If the first round has too few people for as many features.
        """
        check_first_round(self.spec)
        return self.blank()

    @abstractmethod
    def blank(self) -> Any:
        """Return the state before any report."""

    @abstractmethod
    def decided(self, state: Any) -> Mapping[str, Any]:
        """Return what a policy has of a state: ``places``, ``coefficients`` and ``intercepts``."""

    @abstractmethod
    def asked(self, state: Any, seed: int) -> tuple[NDArray[np.int64], ScreenedSum]:
        """Return the features that the next round asks about, and the question."""

    def next(self, state: Any, version: int, seed: int) -> Step:
        """Return the next round: what did not open takes nobody's place."""
        batch = self.spec.turn("", state.heard).batch
        return Step(state, self.policy(state, version, seed, batch), batch, state.heard)

    def last(self, state: Any, version: int, seed: int) -> Step:
        """Return the step that asks nobody."""
        return Step(state, self.policy(state, version, seed, 0), 0, state.heard)

    def policy(self, state: Any, version: int, seed: int, batch: int) -> SparsePolicy:
        """Return the policy of a round of ``batch`` people: it explores as long as nothing is known."""
        spec, known = self.spec, self.decided(state)
        asked, question = self.asked(state, seed)
        return SparsePolicy(
            version=version,
            asked=asked,
            playable=np.array(spec.playable),
            explores=not (known["coefficients"].any() or known["intercepts"].any()),
            seed=seed,
            terms=calibrate(spec.privacy, batch, question) if batch else nobody_asked(spec.privacy, question),
            **known,
        )

    def changed(self, state: Any, before: SparseSpec) -> Any:
        """Return the state: the horizon may grow, and arms may go.

        Raises
        ------
        SpecError
            If there are more arms.
        """
        if self.spec.arm_count > before.arm_count:
            detail = "nothing is known of the features of another arm"
            remedy = (
                "create another experiment with it, which may begin with this one's coefficients in its application"
            )
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        return state

    def begun(self, state: Any, before: SparseSpec) -> Any:
        """Return the state of a new experiment with the same arms and features: evidence stays, people count anew."""
        must_agree(before, self.spec, (*_THE_SAME, "privacy.model"))
        return self.anew(state)

    @abstractmethod
    def anew(self, state: Any) -> Any:
        """Return the state with nobody heard."""

    def miss(self, state: Any, _policy: SparsePolicy, *, again: bool) -> Any:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: Any) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def bulk(self, first: Step) -> list[Bulk]:
        """Return what the largest round carries at most."""
        mechanism: Any = first.policy.terms.mechanism
        return [Bulk(self.spec.largest_batch(), mechanism.messages, mechanism.report_size)]

    def foreseen(self, waiting: float = 0.0) -> tuple[Table, ...]:
        """Return how small coefficients may be to be found, by the number of features."""
        del waiting
        return foreseen(self.spec)


def in_ball(values: Array, intercepts: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts by which no prediction leaves the range of rewards: shrunk if they must be."""
    most = float(np.abs(intercepts).max() + np.abs(values).sum())
    return (values, intercepts) if most <= 1 else (values / most, intercepts / most)
