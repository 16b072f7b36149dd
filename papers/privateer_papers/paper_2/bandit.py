"""Paper 2's Algorithm 1 as printed, one arm a round: its spec, policy and learner."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.bandit import BanditPolicy, BanditSection, BanditSpec, make_arm_layout
from privateer_core.arrays import Array, Coins
from privateer_core.errors import SpecError
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import Question, VectorSum
from privateer_core.privacy.trust import Crowd
from privateer_papers.published_trust import PublishedPrivacy, recast, unsupported_model_error
from privateer_server.algorithms import NewRound, RoundsLearner
from privateer_server.algorithms.bandit.learner import BanditLearner, BanditState
from privateer_server.algorithms.bandit.posterior import PRECISION_PER_REWARD, ArmPosterior, SuccessCounts
from privateer_server.algorithms.bandit.sampling_rules import tsallis

LOSS_BOUND: Final = 0.5
"""B of Algorithm 1: losses are at most this far from the middle of their range."""
_MAX_ROUND_SIZE: Final = 1000
"""Largest round size; the paper's rounds have one participant each."""
_BALL: Final = Ball("max", LOSS_BOUND, 1)
_LIL_EPSILON: Final = 0.01
_LIL_BETA: Final = 1.0
"""The constants of lil'UCB's analysis (Jamieson et al. 2014, Theorem 2)."""


class PublishedBanditSection(BanditSection):
    """The ``[algorithm]``: for regret the host is Tsallis-INF, for the best arm lil'UCB."""

    name: Literal["paper-2-bandit"]  # type: ignore[assignment] # one of its own
    objective: Literal["adversarial", "best-arm"] = "adversarial"


class PublishedBanditSpec(BanditSpec):
    """An experiment with the paper's bandit, in simulation alone."""

    question: ClassVar[type[Question]] = VectorSum

    privacy: PublishedPrivacy
    algorithm: PublishedBanditSection

    @model_validator(mode="after")
    def _check_paper_settings(self) -> Self:
        """Refuse models of trust and round sizes that the paper does not have."""
        if self.privacy.trust.crowd is not Crowd.NOBODY:
            raise unsupported_model_error(self.privacy)
        if self.largest_batch() > _MAX_ROUND_SIZE:
            detail = f"rounds have at most {_MAX_ROUND_SIZE} people, where each plays the same arm"
            raise SpecError(detail, field="experiment.round_size", remedy="lower it, and leave out min_round_fraction")
        return self

    @override
    def make_question(self, choice: Layout) -> Question:
        return VectorSum(_BALL, choice.seed)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._example({"model": "local", "epsilon": 1.0, "delta": 1e-6}, name="paper-2-bandit")}


@dataclass(frozen=True)
class PublishedBanditPolicy(BanditPolicy):
    """A policy with one arm a round; each report is the distance of the arm's loss from the middle of its range."""

    @override
    def accepts_decisions_of(self, decided: int) -> bool:
        return decided == self.version

    @override
    def with_decision_policies(self, decided: Sequence[tuple[BanditPolicy, float]]) -> Self:
        del decided
        return self

    @override
    def _has_mechanism(self, _spec: BanditSpec) -> bool:
        mechanism = self.terms.mechanism
        return self.has_fresh_coins and isinstance(mechanism, VectorMechanism) and mechanism.ball == _BALL

    @override
    def contribute(  # type: ignore[override] # its mechanism is one of vectors
        self, _contexts: Array, coins: Coins, _decisions: Arms, rewards: Array
    ) -> BoundedVectors:
        return BoundedVectors(coins, rewards[:, None] - LOSS_BOUND)


ALGORITHM: Final = Algorithm(PublishedBanditSpec, PublishedBanditPolicy)


class PublishedBanditLearner(BanditLearner):
    """A learner that plays one arm a round, and gives losses with normal noise to its host as they are.

    The hosts are Tsallis-INF, whose rate knows nothing of the noise (Theorem 11), and lil'UCB, whose proxy is
    1/4 + sigma^2 (Theorem 12).
    """

    def start(self, seed: int) -> BanditState:
        """Return the state before any report; refuse retired arms."""
        if self.spec.experiment.retired_arms:
            raise SpecError("is not part of the algorithm", field="experiment.retired_arms", remedy="remove it")
        return super().start(seed)

    @override
    def policy(self, state: BanditState, next_round: NewRound) -> PublishedBanditPolicy:
        """Return a policy with the host's arm for all participants; at the end with the best arm."""
        if not next_round.batch_size:
            return recast(super().policy(state, next_round), PublishedBanditPolicy)
        layout = make_arm_layout(
            next_round.seed,
            np.eye(self.spec.arm_count)[self._choose_arm(state, next_round.batch_size, next_round.seed)],
        )
        return PublishedBanditPolicy(
            next_round.version, self.calibrate_terms(next_round, self.spec.make_question(layout)), layout
        )

    def _choose_arm(self, state: BanditState, batch: int, seed: int) -> int:
        """Return the host's arm for all participants of a round: random for regret, by lil'UCB for the best arm."""
        if not self.finds_best:
            shares = self._shares(state, batch)
            return int(np.random.default_rng(seed).choice(len(shares), p=shares))
        unplayed = np.flatnonzero(self.playable & (state.posterior.people == 0))
        return int(unplayed[0]) if len(unplayed) else self._apply_lil_ucb(state.posterior)[0]

    def _shares(self, state: BanditState, batch: int) -> Array:
        return tsallis(state.posterior.losses, self.playable, 2 / math.sqrt(state.reported + batch), 0.0)

    def _apply_lil_ucb(self, posterior: ArmPosterior) -> tuple[int, bool]:
        reward_proxy = float(posterior.people.sum() / posterior.precision.sum())
        return lil_ucb(posterior, reward_proxy, self.spec.algorithm.failure_probability)

    def learn(self, state: BanditState, policy: BanditPolicy, release: VectorSums) -> BanditState:  # type: ignore[override]
        """Return the state with the round's losses counted in, each divided by the share of its arm."""
        arm, people = int(policy.cells[0]), release.reports
        mechanism: Any = policy.terms.mechanism
        arm_indicator, average = np.eye(self.spec.arm_count)[arm], float(release.sums[0]) / people
        proxy_of_mean = 1 / (PRECISION_PER_REWARD * people) + mechanism.error_bounds(people)[0]
        share = 1.0 if self.finds_best else self._shares(state, policy.terms.batch_size)[arm]
        losses = -people * average * arm_indicator / share
        precisions = arm_indicator / proxy_of_mean
        reported, means = people * arm_indicator, LOSS_BOUND + average * arm_indicator
        counts = SuccessCounts.from_means(reported, means, precisions)
        return self._add_round(state, ArmPosterior.from_round(reported, precisions, means, losses, counts), people)

    def is_best_arm_known(self, state: BanditState) -> bool:
        """Whether lil'UCB stops."""
        posterior = state.posterior
        return bool(posterior.people[self.playable].all()) and self._apply_lil_ucb(posterior)[1]

    @override
    def apply_arm_change(self, state: BanditState, before: BanditSpec) -> BanditState:
        """Refuse other arms: the algorithm runs in simulation alone."""
        return RoundsLearner.apply_arm_change(self, state, before)


def lil_ucb(posterior: ArmPosterior, proxy_of_one: float, failure: float) -> tuple[int, bool]:
    """Return the arm that lil'UCB plays next, and whether it stops there (Jamieson et al. 2014, constants of theory).

    Each arm must have been played once.
    """
    arms, plays = len(posterior.people), posterior.people
    scaled_failure = (failure * _LIL_EPSILON / (5 * (2 + _LIL_EPSILON))) ** (1 / (1 + _LIL_EPSILON))
    log_term = np.log(np.log((1 + _LIL_EPSILON) * plays + 2) / scaled_failure)
    scale = (1 + _LIL_BETA) * (1 + math.sqrt(_LIL_EPSILON))
    index = posterior.interval_centres + scale * np.sqrt(2 * proxy_of_one * (1 + _LIL_EPSILON) * log_term / plays)
    leader = int(np.argmax(plays))
    stops = arms > 1 and plays[leader] >= 1 + ((2 + _LIL_BETA) / _LIL_BETA) ** 2 * (plays.sum() - plays[leader])
    return (leader, True) if stops else (int(np.argmax(index)), False)
