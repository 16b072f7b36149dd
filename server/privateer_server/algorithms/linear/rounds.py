"""What the learners of both reports share: whose turn it is, and what an operator may change."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.linear.design_matrix import LINKS
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact
from privateer_core.answer.parts import Figures
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.linear.again import Recent
from privateer_server.algorithms.linear.contexts import Contexts
from privateer_server.algorithms.linear.running import Running

Array = NDArray[np.float64]


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


class LinearLearner(RoundsLearner[LinearSpec, LinearState, LinearPolicy]):
    """The schedule, which the spec fixes but for who tells second moments."""

    state_type = LinearState
    publishes_result = False
    same = ("algorithm", "experiment.arms", "experiment.retired", "context.features", "reward")

    def __init__(self, spec: LinearSpec) -> None:
        super().__init__(spec)
        self.design, self.link = spec.design, LINKS[spec.algorithm.link]
        self.contexts = Contexts(self.design)

    @override
    def start(self, seed: int) -> LinearState:
        arms, d = self.spec.arm_count, self.design.dimension
        return LinearState(0, np.zeros((arms, d, d)), np.zeros((arms, d)), np.zeros((d, d)), np.zeros((d, d)))

    @abstractmethod
    def known(self, state: LinearState) -> tuple[Array, Array]:
        """Return means (arms, d) and covariances (arms, d, d) of parameters."""

    @abstractmethod
    def matrices(self, state: LinearState) -> tuple[Array, Array]:
        """Return what rows are multiplied with for directions, and for second moments, (d, d) each."""

    @override
    def policy(self, state: LinearState, ahead: NewRound) -> LinearPolicy:
        """Return the policy of a round; where nobody is asked everybody gets the arm with the largest mean."""
        spec, (means, covariances) = self.spec, self.known(state)
        played = np.flatnonzero(spec.playable)
        whitening, telling = self.matrices(state)
        return LinearPolicy(
            version=ahead.version,
            design=self.design,
            link=spec.algorithm.link,
            means=means,
            factors=np.asarray(np.linalg.cholesky(covariances), np.float64),
            whitening=whitening,
            telling=telling,
            exploration=spec.algorithm.exploration if ahead.batch else 0.0,
            playable=np.array(spec.playable),
            # Before anybody is heard nothing but coins chooses, so that one round can ask about all arms.
            favours=int(played[ahead.version % len(played)]) if spec.favours and state.heard else -1,
            share=spec.share,
            seed=ahead.seed,
            terms=self.terms(ahead, spec.asked(ahead.seed)),
        )

    @override
    def rearmed(self, state: LinearState, before: LinearSpec) -> LinearState:
        added = self.spec.arm_count - before.arm_count
        information, scores = _wider(state.information, added), _wider(state.scores, added)
        return replace(state, information=information, scores=scores, recent=state.recent if not added else None)

    @override
    def anew(self, state: LinearState) -> LinearState:
        return replace(state, heard=0, recent=None)

    @override
    def figures(self, state: LinearState) -> dict[str, float]:
        """Return how far a mean reward may be off: standard deviation, averaged over arms and people."""
        spread = np.einsum("kij,ij->k", self.known(state)[1], self.contexts.assumed)
        return {"uncertainty": float(np.sqrt(spread).mean()) / self.link.scale}

    @override
    def answer(self, state: LinearState) -> Answer:
        """Return how well the parameters are known: the policy is all else that is found."""
        over = self.over(state)
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
