"""Paper 2's Algorithm 1 as printed, one arm a round: its spec, policy and learner."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.bandit import BanditPolicy, BanditSection, BanditSpec, layout
from privateer_core.errors import SpecError
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import Question, VectorSum
from privateer_papers.published_trust import PublishedPrivacy, refuse_model
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.bandit.learner import BanditLearner, BanditState
from privateer_server.algorithms.bandit.posterior import PER_REWARD, ArmPosterior
from privateer_server.algorithms.bandit.sampling_rules import tsallis
from privateer_server.algorithms.bandit.success_counts import SuccessCounts

HALF: Final = 0.5
"""B of Algorithm 1: losses are at most this far from the middle of their range."""
_ROUND_MAX: Final = 1000
"""The paper's rounds have one person each."""
_BALL: Final = Ball("max", HALF, 1)
Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
_LIL_EPSILON: Final = 0.01
_LIL_BETA: Final = 1.0
"""The constants of lil'UCB's analysis (Jamieson et al. 2014, Theorem 2)."""


class PublishedBanditSection(BanditSection):
    """The ``[algorithm]``: for regret the host is Tsallis-INF, for the best arm lil'UCB."""

    name: Literal["paper-2-bandit"]  # type: ignore[assignment] # one of its own
    host: Literal["tsallis-inf"] = "tsallis-inf"

    @model_validator(mode="after")
    def _all_in_use(self) -> Self:
        return self


class PublishedBanditSpec(BanditSpec):
    """An experiment with the paper's bandit, in simulation alone."""

    question: ClassVar[type[Question]] = VectorSum

    privacy: PublishedPrivacy
    algorithm: PublishedBanditSection

    @model_validator(mode="after")
    def _as_printed(self) -> Self:
        if self.privacy.trust.batched or self.privacy.trust.curated:
            raise refuse_model(self.privacy)
        if self.largest_batch() > _ROUND_MAX:
            detail = f"rounds have at most {_ROUND_MAX} people, where each plays the same arm"
            raise SpecError(detail, field="experiment.round_size", remedy="lower it, and leave out round_growth")
        return self

    @override
    def asked(self, choice: Layout) -> Question:
        return VectorSum(_BALL, choice.seed)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._instance({"model": "local", "epsilon": 1.0, "delta": 1e-6}, name="paper-2-bandit")}


@dataclass(frozen=True)
class PublishedBanditPolicy(BanditPolicy):
    """The arm of a round, of whose loss everybody reports how far it is from the middle of its range."""

    @classmethod
    def of(cls, policy: BanditPolicy) -> Self:
        """Return a bandit's policy as one of this algorithm."""
        return cls(policy.version, policy.terms, policy.choice)

    @override
    def takes(self, decided: int) -> bool:
        return decided == self.version

    @override
    def followed(self, decided: Sequence[tuple[BanditPolicy, float]]) -> Self:
        del decided
        return self

    @override
    def _asks(self, _spec: BanditSpec) -> bool:
        mechanism = self.terms.mechanism
        return self.fresh_coins and isinstance(mechanism, VectorMechanism) and mechanism.ball == _BALL

    @override
    def contribute(  # type: ignore[override] # its mechanism is one of vectors
        self, _contexts: Array, coins: Coins, _decisions: Arms, rewards: Array
    ) -> BoundedVectors:
        return BoundedVectors(coins, rewards[:, None] - HALF)


ALGORITHM: Final = Algorithm(PublishedBanditSpec, PublishedBanditPolicy)


class PublishedBanditLearner(BanditLearner):
    """A learner that plays one arm a round, and gives losses with normal noise to its host as they are.

    The hosts are Tsallis-INF, whose rate knows nothing of the noise (Theorem 11), and lil'UCB, whose proxy is
    1/4 + sigma^2 (Theorem 12).
    """

    def start(self, seed: int) -> BanditState:
        """Return the state before any report."""
        if self.spec.experiment.retired:
            raise SpecError("is not part of the algorithm", field="experiment.retired", remedy="remove it")
        return super().start(seed)

    @override
    def policy(self, state: BanditState, ahead: NewRound) -> PublishedBanditPolicy:
        """Return the arm that the host names, for everybody; at the end the best one."""
        if not ahead.batch:
            return PublishedBanditPolicy.of(super().policy(state, ahead))
        choice = layout(ahead.seed, np.eye(self.spec.arm_count)[self._arm(state, ahead.batch, ahead.seed)])
        return PublishedBanditPolicy(ahead.version, self.terms(ahead, self.spec.asked(choice)), choice)

    def _arm(self, state: BanditState, batch: int, seed: int) -> int:
        if not self.finds_best:
            shares = self._shares(state, batch)
            return int(np.random.default_rng(seed).choice(len(shares), p=shares))
        unknown = np.flatnonzero(self.playable & (state.posterior.people == 0))
        return int(unknown[0]) if len(unknown) else self._lil(state.posterior)[0]

    def _shares(self, state: BanditState, batch: int) -> Array:
        return tsallis(state.posterior.losses, self.playable, 2 / math.sqrt(state.reported + batch), 0.0)

    def _lil(self, posterior: ArmPosterior) -> tuple[int, bool]:
        one = float(posterior.people.sum() / posterior.precision.sum())
        return lil_ucb(posterior, one, self.spec.algorithm.failure)

    def learn(self, state: BanditState, policy: BanditPolicy, release: VectorSums) -> BanditState:  # type: ignore[override]
        """Return the state with the round's losses counted in, each divided by the share of its arm."""
        arm, people = int(policy.cells[0]), release.reports
        mechanism: Any = policy.terms.mechanism
        played, average = np.eye(self.spec.arm_count)[arm], float(release.sums[0]) / people
        proxy_of_mean = 1 / (PER_REWARD * people) + mechanism.spread(people)[0]
        share = 1.0 if self.finds_best else self._shares(state, policy.terms.batch)[arm]
        losses = -people * average * played / share
        told = played / proxy_of_mean
        reported, means = people * played, HALF + average * played
        counts = SuccessCounts.of_means(reported, means, told)
        posterior = state.posterior.updated(reported, told, means, losses, counts)
        return self._after(state, posterior, people)

    def sure(self, posterior: ArmPosterior) -> bool:
        """Whether lil'UCB stops."""
        return bool(posterior.people[self.playable].all()) and self._lil(posterior)[1]

    @override
    def rearmed(self, state: BanditState, before: BanditSpec) -> BanditState:
        """Refuse other arms: the algorithm runs in simulation alone."""
        return RoundsLearner.rearmed(self, state, before)


def lil_ucb(posterior: ArmPosterior, proxy_of_one: float, failure: float) -> tuple[int, bool]:
    """Return the arm that lil'UCB plays next, and whether it stops there (Jamieson et al. 2014, constants of theory).

    Each arm must have been played once.
    """
    arms, plays = len(posterior.people), posterior.people
    small = (failure * _LIL_EPSILON / (5 * (2 + _LIL_EPSILON))) ** (1 / (1 + _LIL_EPSILON))
    inner = np.log(np.log((1 + _LIL_EPSILON) * plays + 2) / small)
    scale = (1 + _LIL_BETA) * (1 + math.sqrt(_LIL_EPSILON))
    index = posterior.bounded + scale * np.sqrt(2 * proxy_of_one * (1 + _LIL_EPSILON) * inner / plays)
    most = int(np.argmax(plays))
    stops = arms > 1 and plays[most] >= 1 + ((2 + _LIL_BETA) / _LIL_BETA) ** 2 * (plays.sum() - plays[most])
    return (most, True) if stops else (int(np.argmax(index)), False)
