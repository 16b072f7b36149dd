"""Paper 2's convex optimization with its spec, policy and learner: one direction a round.

The learner is as the paper and its sources print it; symbols are the product's.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSection, ConvexSpec
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors, VectorSums
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import Question, VectorSum
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd
from privateer_papers.published_trust import PublishedPrivacy, recast, unsupported_model_error
from privateer_server.algorithms import NewRound
from privateer_server.algorithms.convex.learner import ConvexLearner, ConvexState, draw_frame

_BALL: Final = Ball("max", 1.0, 1)


class PublishedConvexSection(ConvexSection):
    """The ``[algorithm]``."""

    name: Literal["paper-2-convex"]  # type: ignore[assignment] # one of its own


class PublishedConvexSpec(ConvexSpec):
    """An experiment on a convex set by the paper's algorithm, in simulation alone."""

    question: ClassVar[type[Question]] = VectorSum

    privacy: PublishedPrivacy
    algorithm: PublishedConvexSection

    @model_validator(mode="after")
    def _check_paper_settings(self) -> Self:
        """Refuse models of trust, and a conversion window, that the paper does not have."""
        if self.privacy.trust.crowd is not Crowd.NOBODY:
            raise unsupported_model_error(self.privacy)
        if self.experiment.conversion_window_seconds:
            detail = "must be 0: every round has a direction of its own"
            raise SpecError(detail, field="experiment.conversion_window_seconds", remedy="remove it")
        return self

    @override
    def make_question(self, seed: int) -> VectorSum:  # type: ignore[override] # a score, and no keys
        return VectorSum(_BALL, seed)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        algorithm = {"name": "paper-2-convex", "feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0}
        return {"local": cls._example({"model": "local", "epsilon": 4.0, "delta": 1e-5}, algorithm)}


@dataclass(frozen=True)
class PublishedConvexPolicy(ConvexPolicy):
    """A policy with one direction a round; each participant reports the score itself."""

    tells_age = False

    @override
    def _has_mechanism(self, spec: ConvexSpec) -> bool:
        return (
            self.has_fresh_coins == spec.privacy.has_arm_in_key and getattr(self.terms.mechanism, "ball", None) == _BALL
        )

    @override
    def _choose_arms(self, coins: Coins) -> Ints:
        return np.ones(len(coins), np.int64)

    @override
    def contribute(  # type: ignore[override] # its mechanism is one of vectors
        self, _contexts: Any, coins: Coins, decisions: Arms, rewards: Array
    ) -> BoundedVectors:
        return BoundedVectors(coins, self.compute_scores(decisions, rewards)[:, None])


ALGORITHM: Final = Algorithm(PublishedConvexSpec, PublishedConvexPolicy)


class PublishedConvexLearner(ConvexLearner):
    """A learner with one direction a round, and the papers' constants."""

    def __init__(self, spec: PublishedConvexSpec) -> None:
        super().__init__(spec)
        # Slopes are used as devices clip them, without a correction for measurement noise.
        self.pairs = replace(self.pairs, standard_deviation=0.0)

    @override
    def _draw_frame(self, state: ConvexState, seed: int) -> Array:
        return draw_frame(seed, self.domain.dimension)

    @override
    def policy(self, state: ConvexState, next_round: NewRound) -> PublishedConvexPolicy:
        return recast(super().policy(state, next_round), PublishedConvexPolicy)

    @override
    def _mean_scores_by_axis(self, release: VectorSums) -> Array:  # type: ignore[override] # as its policy contributes
        # All participants have the first axis: its score is scaled by the number of axes, and the others are unknown.
        axes = self.domain.dimension
        return np.append(axes * release.sums / release.reports, np.zeros(axes - 1))

    @override
    def _mean_square_score(self, mechanism: Any, people: int) -> float:
        return float(1 + mechanism.error_bounds(people)[0] * people)

    @override
    def _score_deviation(self, terms: Terms) -> float:
        """Return L with the bound of Theorem 3's proof."""
        half, horizon = self.spec.reward.half_range, self.spec.experiment.horizon
        power = self._mean_square_score(terms.mechanism, terms.batch_size)
        return half * (1 + math.sqrt((power - 1) * 2 * math.log(2 * horizon**2)))

    @override
    def _point_distance(self, learned: int, terms: Terms) -> float:
        if self.rule.points == 1:
            return super()._point_distance(learned, terms)
        horizon = self.spec.experiment.horizon
        return self.domain.radius * min(math.log(max(3, horizon)) / horizon, 0.5)

    @override
    def _compute_step(self, learned: int, people: int, policy: ConvexPolicy) -> float:
        if mu := self.rule.strong_convexity:
            return people / (mu * (learned + people))
        if self.rule.points == 2:
            return people / math.sqrt(self.spec.experiment.horizon)
        return super()._compute_step(learned, people, policy)

    @override
    def _ellipsoid_step(self, learned: int, terms: Terms) -> float:
        """Return Hazan and Levy's step, which does not change, for losses of smoothness mu; else Saha and Tewari's."""
        horizon = self.spec.experiment.horizon
        square, log = (self.domain.dimension * self._score_deviation(terms)) ** 2, math.log(max(3, horizon))
        if self.rule.strong_convexity:
            return math.sqrt((self._barriers + 2) * log / (2 * square * horizon))
        return self._ellipsoid_scale(terms) * math.sqrt(self._barriers * log / (2 * square * horizon))

    @override
    def _ellipsoid_scale(self, terms: Terms) -> float:
        """Return the size at which nu ln(T) / eta, 2 eta V T / delta^2 and beta (2 R delta)^2 T add up to the least."""
        if self.rule.strong_convexity:
            return 1.0
        horizon, smoothness = self.spec.experiment.horizon, self.rule.smoothness
        loss = (self.domain.dimension * self._score_deviation(terms)) ** 2 / horizon
        root_factor = math.sqrt(2 * self._barriers * loss * math.log(max(3, horizon)))
        return float(min(1.0, (root_factor / (smoothness * (2 * self.domain.max_norm) ** 2)) ** (1 / 3)))

    @property
    def _barriers(self) -> int:
        """Return nu, the parameter of the barrier."""
        return 1 if self.domain.shape == "ball" else 2 * self.domain.dimension
