"""The spec and policy of paper 2's convex optimization as printed: one direction a round."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.convex.policy import ConvexPolicy
from privateer_core.algorithms.convex.spec import ConvexSection, ConvexSpec
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.primitives.questions import Question, VectorSum
from privateer_papers.published_trust import PublishedPrivacy, refuse_model

_BALL: Final = Ball("max", 1.0, 1)
Array = NDArray[np.float64]


class PublishedConvexSection(ConvexSection):
    """The ``[algorithm]``."""

    name: Literal["paper-2-convex"]  # type: ignore[assignment] # one of its own


class PublishedConvexSpec(ConvexSpec):
    """An experiment on a convex set as the paper has it, in simulation alone."""

    question: ClassVar[type[Question]] = VectorSum

    privacy: PublishedPrivacy
    algorithm: PublishedConvexSection

    @model_validator(mode="after")
    def _as_printed(self) -> Self:
        if self.privacy.trust.batched or self.privacy.trust.curated:
            raise refuse_model(self.privacy)
        if self.experiment.conversion_window:
            detail = "must be 0: every round has a direction of its own"
            raise SpecError(detail, field="experiment.conversion_window", remedy="remove it")
        return self

    @override
    def asked(self, seed: int) -> VectorSum:  # type: ignore[override] # a score, and no keys
        return VectorSum(_BALL, seed)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        two = {"name": "paper-2-convex", "feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0}
        return {"local": cls._instance({"model": "local", "epsilon": 4.0, "delta": 1e-5}, two)}


@dataclass(frozen=True)
class PublishedConvexPolicy(ConvexPolicy):
    """Everybody has the direction of the round, and reports the score itself."""

    @property
    @override
    def tells_age(self) -> bool:
        return False

    @override
    def _asks(self, spec: ConvexSpec) -> bool:
        return self.fresh_coins == spec.privacy.arm_in_key and getattr(self.terms.mechanism, "ball", None) == _BALL

    @override
    def _arms(self, coins: NDArray[np.uint32]) -> NDArray[np.int64]:
        return np.ones(len(coins), np.int64)

    @override
    def contribute(  # type: ignore[override] # its mechanism is one of vectors
        self, _contexts: Any, coins: NDArray[np.uint32], decisions: Arms, rewards: Array
    ) -> BoundedVectors:
        return BoundedVectors(coins, self.scores(decisions, rewards)[:, None])


ALGORITHM: Final = Algorithm(PublishedConvexSpec, PublishedConvexPolicy)
