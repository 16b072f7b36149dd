"""The spec and policy of paper 2's Algorithm 1, as printed: one arm a round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.bandit import BanditPolicy, BanditSection, BanditSpec
from privateer_core.errors import SpecError
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import Question, VectorSum
from privateer_papers.published_trust import PublishedPrivacy, refuse_model

HALF: Final = 0.5
"""B of Algorithm 1: losses are at most this far from the middle of their range."""
_ROUND_MAX: Final = 1000
"""The paper's rounds have one person each."""
_BALL: Final = Ball("max", HALF, 1)
Array = NDArray[np.float64]
Coins = NDArray[np.uint32]


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
