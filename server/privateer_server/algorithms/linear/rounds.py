"""What the learners of both reports share: whose turn it is, and what an operator may change."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.linear.links import LINKS
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer import Answer
from privateer_core.answer.parts import Figures
from privateer_core.answer.tables import Fact
from privateer_core.contributions import VectorSums
from privateer_core.terms import calibrate, nobody_asked
from privateer_server.algorithms import Bulk, Step, must_agree
from privateer_server.algorithms.linear.again import Recent
from privateer_server.algorithms.linear.contexts import Contexts
from privateer_server.algorithms.linear.running import Running

Array = NDArray[np.float64]
_THE_SAME: Final = ("algorithm", "experiment.arms", "experiment.retired", "context.features", "reward")


@dataclass(frozen=True)
class LinearState:
    """What the server knows.

    Attributes
    ----------
    heard
        People whose reports opened.
    information
        Shape (arms, d, d): what has been learned of every arm's parameter, as `posterior` takes it; of joint reports
        the noisy second moments.
    scores
        Shape (arms, d).
    moments, precision
        Second moments of whitened contexts, (d, d), summed with their precisions, and the sum of these, (d, d); of
        joint reports, precisions are all the variance of noise in ``information``.
    running
        Sums since noise began anew, where it depends on that of earlier rounds.
    recent
        The rounds that are read again when more is known of contexts; what they say is part of ``information``, too.
    """

    heard: int
    information: Array
    scores: Array
    moments: Array
    precision: Array
    running: Running | None = None
    recent: Recent | None = None


class Rounds(ABC):
    """The schedule, which the spec fixes but for who tells second moments."""

    state_type: ClassVar[type[LinearState]] = LinearState
    repeats: ClassVar[bool] = False
    publishes_result: ClassVar[bool] = False
    growth: ClassVar[tuple[str, str]] = ("experiment.round_growth", "the people in all")

    def __init__(self, spec: LinearSpec) -> None:
        self.spec, self.design = spec, spec.design
        self.link = LINKS[spec.algorithm.link]
        self.contexts = Contexts(self.design)

    def start(self, _seed: int) -> LinearState:
        """Return the state before any report."""
        arms, d = self.spec.arm_count, self.design.dimension
        return LinearState(0, np.zeros((arms, d, d)), np.zeros((arms, d)), np.zeros((d, d)), np.zeros((d, d)))

    @abstractmethod
    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return means (arms, d) and covariances (arms, d, d) of parameters."""

    @abstractmethod
    def matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return what rows are multiplied with for directions, and for second moments, (d, d) each."""

    @abstractmethod
    def learn(self, state: LinearState, policy: LinearPolicy, release: VectorSums) -> LinearState:
        """Return the state after a round's release."""

    def next(self, state: LinearState, version: int, seed: int) -> Step:
        """Return the next round: what did not open takes nobody's place."""
        batch = self.spec.turn("", state.heard).batch
        return Step(state, self.policy(state, version, seed, batch), batch, state.heard)

    def last(self, state: LinearState, version: int, seed: int) -> Step:
        """Return the step that asks nobody: everybody gets the arm with the largest mean."""
        return Step(state, self.policy(state, version, seed, 0), 0, state.heard)

    def policy(self, state: LinearState, version: int, seed: int, batch: int) -> LinearPolicy:
        """Return the policy of a round of ``batch`` people."""
        spec, (means, covariances) = self.spec, self.known(state)
        played = np.flatnonzero(spec.playable)
        question, (whitening, telling) = spec.asked(seed), self.matrices(state)
        return LinearPolicy(
            version=version,
            design=self.design,
            link=spec.algorithm.link,
            means=means,
            factors=np.asarray(np.linalg.cholesky(covariances), np.float64),
            whitening=whitening,
            telling=telling,
            exploration=spec.algorithm.exploration if batch else 0.0,
            playable=np.array(spec.playable),
            # Before anybody is heard nothing but coins chooses, so that one round can ask about all arms.
            favours=int(played[version % len(played)]) if spec.favours and state.heard else -1,
            share=spec.share,
            seed=seed,
            terms=calibrate(spec.privacy, batch, question, reports=spec.reports)
            if batch
            else nobody_asked(spec.privacy, question),
        )

    def changed(self, state: LinearState, before: LinearSpec) -> LinearState:
        """Return the state with so many more arms at the end, of which nothing is known."""
        added = self.spec.arm_count - before.arm_count
        information, scores = _wider(state.information, added), _wider(state.scores, added)
        return replace(state, information=information, scores=scores, recent=state.recent if not added else None)

    def begun(self, state: LinearState, before: LinearSpec) -> LinearState:
        """Return the state of a new experiment with the same arms and features: evidence stays, people count anew."""
        must_agree(before, self.spec, _THE_SAME)
        return replace(state, heard=0, recent=None)

    def miss(self, state: LinearState, _policy: LinearPolicy, *, again: bool) -> LinearState:
        """Return the state as it is: other people report in the next round."""
        del again
        return state

    def failed(self, _state: LinearState) -> bool:
        """Whether a round came to no end: rounds wait for their people."""
        return False

    def bulk(self, first: Step) -> list[Bulk]:
        """Return what the largest round carries at most."""
        mechanism: Any = first.policy.terms.mechanism
        return [Bulk(self.spec.largest_batch(), mechanism.messages, mechanism.report_size)]

    def figures(self, state: LinearState) -> dict[str, float]:
        """Return how far a mean reward may be off: standard deviation, averaged over arms and people."""
        spread = np.einsum("kij,ij->k", self.known(state)[1], self.contexts.assumed)
        return {"uncertainty": float(np.sqrt(spread).mean()) / self.link.scale}

    def answer(self, state: LinearState) -> Answer:
        """Return how well the parameters are known: the policy is all else that is found."""
        over = not self.spec.turn("", state.heard).batch
        off = Fact("typical error of a mean reward", round(self.figures(state)["uncertainty"], 4), "number")
        return Answer(
            status="ended" if over else "learning",
            people=state.heard,
            rounds=None,
            confidence=None,
            ended="its horizon" if over else None,
            parts=(Figures("what is known", (off,)),) if state.heard else (),
        )

    def centre(self) -> Array:
        """Return the prior's mean of any arm's parameter, (d,)."""
        return np.asarray(self.link.centre * np.eye(1, self.design.dimension)[0])


def _wider(values: Array, added: int) -> Array:
    return np.concatenate([values, np.zeros((added, *values.shape[1:]))])
