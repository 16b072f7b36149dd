"""Upper confidence bounds on fixed bins: their spec and policy. docs/adding-an-algorithm.md explains them."""

from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import PolicyView
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms, ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.context import EqualBins, describe_bins
from privateer_core.spec.sections import Section


class UcbSection(Section):
    """The ``[algorithm]``: ``bins`` are those of every column of a context, all equally wide."""

    name: Literal["ucb"]
    bins: int = Field(default=4, ge=1)


class UcbSpec(ArmsSpec):
    """An experiment with upper confidence bounds."""

    question = KeyedHits
    algorithm: UcbSection  # type: ignore[assignment] # a section of its own, with the base's key

    @property
    def bins(self) -> EqualBins:
        """The bins of contexts, in each of which every arm is a key."""
        return EqualBins(self.algorithm.bins, self.dimension)

    @model_validator(mode="after")
    def _has_few_keys(self) -> Self:
        if self.bins.count * self.arm_count > 1024:
            raise SpecError("too many pairs of a bin and an arm", field="algorithm.bins", remedy="have at most 1024")
        return self

    @override
    def typical_question(self, seed: int = 0) -> KeyedHits:
        return KeyedHits.from_keys(self.bins.count * self.arm_count, seed)


@dataclass(frozen=True)
class UcbPolicy(ArmsPolicy):
    """The arm of every bin: ``table`` has the shape (bins,)."""

    version: int
    bins: EqualBins
    table: Ints
    terms: Terms

    @override
    def is_compatible(self, spec: UcbSpec) -> bool:
        typed = self.bins == spec.bins and self.table.shape == (spec.bins.count,) and self.table.dtype == np.int64
        playable = bool(np.isin(self.table, np.flatnonzero(spec.playable)).all())
        return typed and playable and self.has_layout_of(spec.bins.count * spec.arm_count)

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        return Arms(self.table[self.bins.locate(contexts)])

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        keys = self.bins.locate(contexts) + self.bins.count * decisions.arms
        return KeyedValues.ungrouped(coins, keys, rewards)

    @override
    def view(self, spec: UcbSpec) -> PolicyView:
        arms = [{spec.options[arm]: 1.0} for arm in self.table.tolist()]
        return PolicyView(spec.algorithm.name, self.version, describe_bins(spec.features, self.bins.edges(), arms))


ALGORITHM: Final = Algorithm(UcbSpec, UcbPolicy)
