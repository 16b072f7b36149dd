"""Upper confidence bounds on fixed bins: their spec and policy. docs/adding-an-algorithm.md explains them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import PolicyView
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy, Array, Coins
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits, Question
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import bins_of
from privateer_core.spec.sections import Section


class UcbSection(Section):
    """The ``[algorithm]``: ``bins`` are those of every column of a context, all equally wide."""

    name: Literal["ucb"]
    bins: int = Field(default=4, ge=1)


class UcbSpec(ArmsSpec):
    """An experiment with upper confidence bounds."""

    question: ClassVar[type[Question]] = KeyedHits
    algorithm: UcbSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.algorithm.bins**self.dimension * self.arm_count > 1024:
            detail = "there are more than 1024 pairs of a bin and an arm"
            raise SpecError(detail, field="algorithm.bins", remedy="lower it, or have fewer features")
        return self

    @override
    def usual_question(self, seed: int = 0) -> KeyedHits:
        keys = self.algorithm.bins**self.dimension * self.arm_count
        return KeyedHits(SlotLayout(seed, np.zeros((keys, 0), np.uint32)))


@dataclass(frozen=True)
class UcbPolicy(ArmsPolicy):
    """The arm of every bin: ``table`` has an axis for each column of a context."""

    version: int
    table: NDArray[np.int64]
    terms: Terms

    @override
    def fits(self, spec: UcbSpec) -> bool:
        keys = spec.usual_question().layout.keys
        same = self.table.shape == (spec.algorithm.bins,) * spec.dimension and self.table.dtype == np.int64
        asked = getattr(self.terms.mechanism, "layout", SlotLayout.small()).shares.shape == (keys, 1)
        return same and asked and bool(np.isin(self.table, np.flatnonzero(spec.playable)).all())

    def bins_of(self, contexts: Array) -> tuple[NDArray[np.int64], ...]:
        """Return the bin of each of n people: places, (n,) each, along the axes of ``table``."""
        places = np.minimum((contexts * self.table.shape).astype(np.int64), np.array(self.table.shape) - 1)
        return tuple(places.T)

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        return Arms(self.table[self.bins_of(contexts)])

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        mechanism: Any = self.terms.mechanism
        bins = np.ravel_multi_index(self.bins_of(contexts), self.table.shape)
        keys = bins * (mechanism.layout.keys // self.table.size) + decisions.arms
        return KeyedValues(coins, keys, np.zeros_like(keys), rewards)

    @override
    def view(self, spec: UcbSpec) -> PolicyView:
        places = np.indices(self.table.shape).reshape(self.table.ndim, -1).T
        corners = places / self.table.shape, (places + 1) / self.table.shape
        arms = [{spec.options[arm]: 1.0} for arm in self.table.ravel().tolist()]
        return PolicyView(spec.algorithm.name, self.version, bins_of(spec.features, corners, arms))


ALGORITHM: Final = Algorithm(UcbSpec, UcbPolicy)
