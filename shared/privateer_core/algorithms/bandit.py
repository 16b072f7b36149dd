"""Bandits without context (Zheng et al. 2020, Algorithm 1): their spec, and their policy, shares of arms."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import EVERYBODY, ArmsOfGroup, GroupShares, PolicyView
from privateer_core.errors import SpecError
from privateer_core.mechanisms import GroupedBit, HitsMechanism, KeyedMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans, Question, SmallDomainMeans
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import example_promises

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]


class BanditSection(Section):
    """The ``[algorithm]`` of a bandit without context."""

    name: Literal["bandit"]
    # ``regret``: people get what is best. ``best-arm``: the experiment stops as soon as it knows the best arm.
    objective: Literal["regret", "best-arm"] = "regret"
    # what learns from private reports, where regret counts: ``thompson``, ``kl-ucb``, or ``tsallis-inf`` for rewards
    # that an adversary may choose
    host: Literal["thompson", "kl-ucb", "tsallis-inf"] = "thompson"
    # probability that any interval around an arm's mean reward ever misses it; and that the experiment stops with an
    # arm that is not the best
    failure: float = Field(default=0.05, ge=1e-12, lt=1)

    @model_validator(mode="after")
    def _all_in_use(self) -> Self:
        if self.objective == "best-arm" and self.host != "thompson":
            detail = "does nothing where the objective is the best arm, which has a rule of its own"
            raise SpecError(detail, field="algorithm.host", remedy="remove it")
        return self


class BanditSpec(ArmsSpec):
    """An experiment with a bandit that asks for no context."""

    question: ClassVar[type[Question]] = SmallDomainMeans
    capabilities: ClassVar[Capabilities] = replace(ArmsSpec.capabilities, further_questions=(), coins_decide=True)

    context: None = None  # type: ignore[assignment] # the base asks for one
    algorithm: BanditSection  # type: ignore[assignment] # a section of its own, with the base's key

    @field_validator("context", mode="before")
    @classmethod
    def _no_context(cls, context: Any) -> Any:
        if context is not None:
            detail, remedy = "this algorithm looks at no context", "remove it, or choose an algorithm that does"
            raise SpecError(detail, field="context", remedy=remedy)
        return context

    @property
    @override
    def features(self) -> dict[str, Any]:
        return {}

    def asked(self, choice: Layout) -> Question:
        """Return what a round asks whose coins choose so.

        Where the arm is in the key, every arm with a share is a key. Otherwise there is one key, and coins choose its
        group.
        """
        if self.groups_arms:
            return SmallDomainMeans(choice, seen=True)
        if not self.privacy.arm_in_key:
            return KeyedMeans(choice)
        played = int(np.count_nonzero(choice.shares[0]))
        return SmallDomainMeans(Layout.ungrouped(played, choice.seed), key_share=1 / played)

    @override
    def usual_question(self) -> Question:
        return self.asked(layout(0, np.array(self.playable) / sum(self.playable)))

    def concerns(self) -> list[str]:
        """Say what hiding the arm costs, where it is hidden in the report."""
        found = super().concerns()
        if not self.privacy.arm_in_key:
            return found
        return [
            *found,
            "reports hide the arm, because privacy.arms = 'seen' promises privacy against whoever sees which arm a "
            "person got. If nobody does, privacy.arms = 'hidden' learns with half of the regret; if somebody does who "
            "drops no reports by their arm, 'grouped' loses less above epsilon 1",
        ]

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        made = {name: cls._instance(promise) for name, promise in promises.items()}
        made["local-kl-ucb"] = cls._instance(promises["local"], host="kl-ucb")
        made["shuffle-grouped"] = cls._instance(promises["shuffle"] | {"arms": "grouped"})
        made["shuffle-hidden"] = cls._instance(promises["shuffle"] | {"arms": "hidden"}, host="tsallis-inf")
        made["central-best-arm"] = cls._instance(promises["central"], objective="best-arm")
        return made

    @classmethod
    def _instance(cls, privacy: Any, **algorithm: Any) -> Self:
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 6_000, "round_size": 1000},
            "privacy": privacy,
            "algorithm": {"name": "bandit", **algorithm},
        }
        return parse_section(cls, data)


def layout(seed: int, shares: Array) -> Layout:
    """Return the plan by which coins choose arms by these shares, (arms,), to the next of 65,536 parts."""
    edges = np.minimum(np.rint(np.cumsum(shares)[:-1] * UNIT), UNIT).astype(np.uint32)
    return Layout(seed, edges[None, :])


@dataclass(frozen=True)
class BanditPolicy(ArmsPolicy):
    """Shares of arms, the same for everybody."""

    version: int
    terms: Terms
    # what the coins of a choice mean, where a report hides the arm and has coins of its own; None: they are those of
    # the report
    choice: Layout | None = None

    @property
    def layout(self) -> Layout:
        """What the coins of a choice mean: one key, whose groups are arms."""
        mechanism: Any = self.terms.mechanism
        return mechanism.layout if self.choice is None else self.choice

    @property
    @override
    def fresh_coins(self) -> bool:
        return self.choice is not None

    @property
    @override
    def mixes(self) -> bool:
        return self.fresh_coins

    @cached_property
    def played(self) -> Array:
        """The share of each arm among the people who report, whichever policies decided; shape (arms,)."""
        if not self.deciders:
            return np.asarray(self.layout.shares[0])
        shares = np.zeros(self.layout.groups)
        for policy, weight in self.deciders:
            shares[: policy.layout.groups] += weight * policy.layout.shares[0]
        return np.asarray(layout(self.layout.seed, shares).shares[0])

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The arms that are keys, where they are, rising; shape (keys,)."""
        return np.flatnonzero(self.layout.shares[0])

    @override
    def fits(self, spec: BanditSpec) -> bool:
        mechanism = self.terms.mechanism
        has = self.choice is not None or isinstance(mechanism, KeyedMechanism | HitsMechanism | GroupedBit)
        return has and self._chooses(spec) and (self.terms.batch == 0 or self._asks(spec))

    def _chooses(self, spec: BanditSpec) -> bool:
        """Whether coins lead to arms that may be played."""
        thresholds = self.layout.thresholds.astype(np.int64)
        if thresholds.shape != (1, spec.arm_count - 1):
            return False
        rising = bool((np.diff(thresholds) >= 0).all() and (thresholds <= UNIT).all())
        return rising and not (self.layout.shares[0] > 0)[~np.array(spec.playable)].any()

    def _asks(self, spec: BanditSpec) -> bool:
        """Whether reports are about what the spec says: coins of groups that are seen protect each group by itself."""
        if isinstance(self.terms.mechanism, GroupedBit) or spec.groups_arms:
            grouped = spec.groups_arms and not self.fresh_coins and isinstance(self.terms.mechanism, GroupedBit)
            return grouped and self.asks_about(1, spec.arm_count)
        if not isinstance(self.terms.mechanism, KeyedMechanism | HitsMechanism):
            return False
        same = self.fresh_coins == spec.privacy.arm_in_key
        return same and (self.asks_about(len(self.cells)) if self.fresh_coins else self.asks_about(1, spec.arm_count))

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        keys = np.zeros(len(coins), np.int64)
        return Arms(self.layout.group(self.layout.hashes(coins, keys), keys))

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        if self.fresh_coins:
            keys = np.full(self.layout.groups, -1, np.int64)
            keys[self.cells] = np.arange(len(self.cells))
            return KeyedValues.ungrouped(coins, keys[decisions.arms], rewards)
        return KeyedValues(coins, np.zeros(len(coins), np.int64), decisions.arms, rewards)

    @override
    def view(self, spec: BanditSpec) -> PolicyView:
        shares = zip(spec.options, self.layout.shares[0].tolist(), strict=True)
        everybody = ArmsOfGroup(EVERYBODY, {name: round(share, 5) for name, share in shares if share})
        return PolicyView(spec.algorithm.name, self.version, GroupShares((everybody,)))


ALGORITHM: Final = Algorithm(BanditSpec, BanditPolicy)
