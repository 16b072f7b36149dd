"""The spec of private high-dimensional bandits, with all refusals."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms.sparse.arm_features import ArmContext
from privateer_core.errors import SpecError
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import Question, SecondMoments
from privateer_core.spec.arms import ARMS_MAX, ArmsSpec
from privateer_core.spec.features import Feature
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import example_promises

HELD_MAX: Final = 256 << 20
"""Bytes that a server holds for an open round, at most."""
CLASSES_MAX: Final = 64
"""Features of which one report each can be told apart, where every report is private by itself."""


class SparseTable(Section):
    """The ``[algorithm]`` of high-dimensional bandits.

    Attributes
    ----------
    sparsity
        How many features matter, at most: so many are kept.
    """

    name: Literal["sparse"]
    sparsity: int = Field(ge=1, le=CLASSES_MAX)


class SparseSpec(ArmsSpec):
    """An experiment with rewards that are linear in few of an arm's many features."""

    question: ClassVar[type[Question]] = SecondMoments
    tells_of_arms: ClassVar[bool] = False

    context: ArmContext  # type: ignore[assignment] # numbers of every arm, in the place of a person's features
    algorithm: SparseTable  # type: ignore[assignment] # a section of its own, with the base's key

    @property
    def arm_features(self) -> int:
        """Number of features of an arm, d."""
        return len(self.context.names)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The numbers of all arms, in order."""
        return self.context.of_arms(self.options)

    @property
    def dimension(self) -> int:
        """Number of columns of an encoded context."""
        return self.arm_count * self.arm_features

    @property
    def kept_most(self) -> int:
        """How many features a block has at most."""
        return min(self.algorithm.sparsity, self.arm_features)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.algorithm.sparsity > self.arm_features:
            detail = f"must be at most {self.arm_features}, the features of an arm"
            raise SpecError(detail, field="algorithm.sparsity", remedy="lower it")
        self._check_memory()
        if self.is_alone and self.arm_features > CLASSES_MAX:
            detail = f"{self.arm_features} features are too many where every report is private by itself"
            remedy = f"name at most {CLASSES_MAX}, or use a curator or a shuffler"
            raise SpecError(detail, field="context.features", remedy=remedy)
        return self

    def _check_memory(self) -> None:
        held = self._held(self.arm_features)
        if held > HELD_MAX:
            detail = f"make a server hold {held / 2**20:,.0f} MiB for a round; at most {HELD_MAX >> 20}"
            raise SpecError(detail, field="context.features", remedy=f"leave features out: {_most_features()} fit")

    def _held(self, features: int) -> int:
        """Return the bytes that a server holds for a round about so many features."""
        size = self.ball(features).coordinates
        return 4 * size * (size + 1) if self.privacy.trust.curated else 8 * size

    def takes(self, features: int) -> bool:
        """Whether a spec may have so many features."""
        return self._held(features) <= HELD_MAX and not (self.is_alone and features > CLASSES_MAX)

    @property
    def is_alone(self) -> bool:
        """Whether every report is private by itself."""
        return not (self.privacy.trust.curated or self.privacy.trust.batched)

    @property
    @override
    def telling(self) -> float:
        return 1 / self.arm_features if self.is_alone else 1.0

    def ball(self, features: int) -> Ball:
        """Return where reports about so many features lie."""
        if self.privacy.trust.curated:
            return Ball("max", 1.0, self.arm_count + features + 1)
        return Ball("max", 1.0, features) if self.privacy.trust.batched else Ball("l2", 1.0, 1)

    def question_about(self, features: int, seed: int) -> SecondMoments:
        """Return what a round asks about so many features where there is no curator; else, where records lie."""
        return SecondMoments(self.ball(features), seed, features if self.is_alone else 1, arms=self.arm_count)

    @override
    def usual_question(self) -> SecondMoments:
        return replace(self.question_about(self.arm_features, 0), screened=self.kept_most)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {str(one["model"]): cls._instance(one) for one in example_promises()}

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any]) -> Self:
        data = {
            "experiment": {
                "name": "test",
                "arms": ["a", "b", "c"],
                "horizon": 1500,
                "round_size": 500,
                "round_growth": 1.0,
            },
            "context": {"features": 3},
            "privacy": {**privacy, "min_batch": 100},
            "algorithm": {"name": "sparse", "sparsity": 1},
        }
        return parse_section(cls, data)


def _most_features() -> int:
    """Return how many features fit, about."""
    return int(math.sqrt(HELD_MAX / 4)) - ARMS_MAX - 2
