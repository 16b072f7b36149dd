"""Spec and policy of bandits without context (Zheng et al. 2020, Algorithm 1)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import EVERYBODY, ArmsOfGroup, GroupShares, PolicyView
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import SpecError
from privateer_core.mechanisms import GroupedBit, HitsMechanism, KeyedMechanism
from privateer_core.policies.policy import Arms, ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans, Question, SmallDomainMeans
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.half_life import FIELD, HalfLife, check_half_lives, half_life_concerns, list_half_lives
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities, example_promises

_UNWRITTEN: Final = (("best_count", 1), ("half_life", None))


class BanditSection(Section):
    """The ``[algorithm]`` of a bandit without context."""

    name: Literal["bandit"]
    # ``regret``: Thompson sampling. ``moving``: KL-UCB, which tries arms again, because others may rise.
    # ``adversarial``: where an adversary may choose rewards (Tsallis-INF). ``best-arm``: the
    # experiment stops as soon as it knows the best arm. ``best-arms``: the people of the horizon are the budget, and
    # the result is a set of the best arms with a bound of the probability that it is wrong.
    objective: Literal["regret", "moving", "adversarial", "best-arm", "best-arms"] = "regret"
    best_count: int = Field(default=1, ge=1)  # how many arms ``best-arms`` looks for
    # probability that any confidence interval of an arm's mean reward ever misses it, and that the experiment stops
    # with an arm that is not the best
    failure_probability: float = Field(default=0.05, ge=1e-12, lt=1)
    half_life: HalfLife = None  # of evidence, where rewards may change

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without default values of later keys, so that specs without these keys keep their bytes."""
        return {name: value for name, value in serialize(self).items() if (name, value) not in _UNWRITTEN}

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives that a learner compares, in participants, the infinite one first; empty without forgetting."""
        return list_half_lives(self.half_life)


class BanditSpec(ArmsSpec):
    """A spec of an experiment with a bandit without context."""

    question: ClassVar[type[Question]] = SmallDomainMeans
    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        ArmsSpec.capabilities, further_questions=(), takes_tiers=True, coins_decide=True, needs_context=False
    )

    context: None = None
    algorithm: BanditSection  # type: ignore[assignment] # a section of its own, with the base's key

    @field_validator("context", mode="before")
    @classmethod
    def _check_no_context(cls, context: Any) -> Any:
        """Refuse a ``[context]``, which this algorithm does not use."""
        if context is not None:
            detail, remedy = "this algorithm looks at no context", "remove it, or choose an algorithm that does"
            raise SpecError(detail, field="context", remedy=remedy)
        return context

    @model_validator(mode="after")
    def _check_best_count(self) -> Self:
        """Refuse a number of best arms that leaves no other arm, or that the objective does not use."""
        count, finds_set = self.algorithm.best_count, self.algorithm.objective == "best-arms"
        if count >= sum(self.playable) or (count > 1 and not finds_set):
            detail = f"is {count}, of {sum(self.playable)} arms, with the objective '{self.algorithm.objective}'"
            remedy = "have fewer than arms, and algorithm.objective = 'best-arms'"
            raise SpecError(detail, field="algorithm.best_count", remedy=remedy)
        return self

    @model_validator(mode="after")
    def _check_half_life(self) -> Self:
        """Refuse a half-life below a round, or one with an objective that needs all reports."""
        if self.algorithm.half_lives and self.algorithm.objective != "regret":
            detail = f"must be 'none' with the objective '{self.algorithm.objective}', which needs all reports"
            raise SpecError(detail, field=FIELD, remedy="remove it, or set algorithm.objective = 'regret'")
        check_half_lives(self.algorithm.half_lives, self.experiment.round_size)
        return self

    def make_question(self, choice: Layout) -> Question:
        """Return the question of a round whose coins choose arms by this layout.

        If the key of a report contains the arm, every arm with a share is a key. Otherwise there is one key, and coins
        choose its group.
        """
        if self.groups_arms:
            return SmallDomainMeans(choice, has_visible_groups=True)
        if not self.privacy.has_arm_in_key:
            return KeyedMeans(choice)
        n_active = int(np.count_nonzero(choice.shares[0]))
        return SmallDomainMeans(Layout.ungrouped(n_active, choice.seed), key_share=1 / n_active)

    @override
    def typical_question(self) -> Question:
        return self.make_question(make_arm_layout(0, np.array(self.playable) / sum(self.playable)))

    @override
    def concerns(self) -> list[str]:
        """Return the base's warnings, and one if reports hide the arm."""
        concerns = super().concerns()
        if self.privacy.has_arm_in_key:
            reason = (
                "reports hide the arm, because privacy.arm_visibility = 'visible' promises privacy against whoever "
                "sees which arm a person got. If nobody does, "
            )
            remedy = (
                "compare it with 'hidden' by privateer plan"
                if self.privacy.trust.crowd is Crowd.RELEASE
                else "privacy.arm_visibility = 'hidden' learns with half of the regret; if somebody does who drops no "
                "reports by their arm, 'grouped' loses less above epsilon 1"
            )
            concerns.append(reason + remedy)
        return concerns + half_life_concerns(self.algorithm.half_lives, self.largest_batch())

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance of every trust model, and one of every objective and way of hiding arms."""
        promises = example_promises(cls.question)
        specs = {name: cls._example(promise) for name, promise in promises.items()}
        tiers = {"tiers": [{"name": "careful", "epsilon": 1.0, "share": 0.5}]}
        specs["local-tiers"] = cls._example(promises["local"] | tiers)
        specs["local-kl-ucb"] = cls._example(promises["local"], objective="moving")
        specs["shuffle-grouped"] = cls._example(promises["shuffle"] | {"arm_visibility": "grouped"})
        specs["shuffle-hidden"] = cls._example(
            promises["shuffle"] | {"arm_visibility": "hidden"}, objective="adversarial"
        )
        specs["central-best-arm"] = cls._example(promises["central"], objective="best-arm")
        specs |= {f"{name}-half-life": cls._example(promise, half_life="auto") for name, promise in promises.items()}
        specs["local-best-arms"] = cls._example(
            promises["local"], ("a", "b", "c", "d"), objective="best-arms", best_count=2
        )
        return specs

    @classmethod
    def _example(cls, privacy: Any, arms: tuple[str, ...] = ("a", "b", "c"), **algorithm: Any) -> Self:
        experiment = {"name": "test", "arms": list(arms), "horizon": 6_000, "round_size": 1000}
        tables = {"experiment": experiment, "privacy": privacy, "algorithm": {"name": "bandit", **algorithm}}
        return parse_section(cls, tables)


def make_arm_layout(seed: int, shares: Array) -> Layout:
    """Return the layout by which coins choose arms with these probabilities, (arms,), rounded to 1/65,536."""
    edges = np.minimum(np.rint(np.cumsum(shares)[:-1] * UNIT), UNIT).astype(np.uint32)
    return Layout(seed, edges[None, :])


@dataclass(frozen=True)
class BanditPolicy(ArmsPolicy):
    """A policy that gives every participant the same probabilities of arms."""

    version: int
    terms: Terms
    # the layout of a choice's coins, if reports hide the arm and have coins of their own; None: a report has the coins
    # of the choice
    choice: Layout | None = None

    @property
    def layout(self) -> Layout:
        """The layout of a choice's coins: a single key, with arms as groups."""
        mechanism: Any = self.terms.mechanism
        return mechanism.layout if self.choice is None else self.choice

    @property
    @override
    def has_fresh_coins(self) -> bool:
        return self.choice is not None

    is_mixture = has_fresh_coins

    @cached_property
    def active_shares(self) -> Array:
        """The share of each arm among the participants who report, over all deciding policies; shape (arms,)."""
        if not self.deciders:
            return np.asarray(self.layout.shares[0])
        shares = np.zeros(self.layout.groups)
        for policy, weight in self.deciders:
            shares[: policy.layout.groups] += weight * policy.layout.shares[0]
        return np.asarray(make_arm_layout(self.layout.seed, shares).shares[0])

    @cached_property
    def cells(self) -> Ints:
        """The arms with a positive share, in ascending order; shape (keys,)."""
        return np.flatnonzero(self.layout.shares[0])

    @override
    def is_compatible(self, spec: BanditSpec) -> bool:
        mechanism = self.terms.mechanism
        has_keys = self.choice is not None or isinstance(mechanism, KeyedMechanism | HitsMechanism | GroupedBit)
        return has_keys and self._has_playable_arms(spec) and (self.terms.batch_size == 0 or self._has_mechanism(spec))

    def _has_playable_arms(self, spec: BanditSpec) -> bool:
        """Whether thresholds are valid and give no retired arm."""
        thresholds = self.layout.thresholds.astype(np.int64)
        if thresholds.shape != (1, spec.arm_count - 1):
            return False
        is_rising = bool((np.diff(thresholds) >= 0).all() and (thresholds <= UNIT).all())
        return is_rising and not (self.layout.shares[0] > 0)[~np.array(spec.playable)].any()

    def _has_mechanism(self, spec: BanditSpec) -> bool:
        """Whether the mechanism and its layout are the spec's; `GroupedBit` is for an arm visibility of ``grouped``."""
        if isinstance(self.terms.mechanism, GroupedBit) or spec.groups_arms:
            is_grouped = spec.groups_arms and not self.has_fresh_coins and isinstance(self.terms.mechanism, GroupedBit)
            return is_grouped and self.has_layout_of(1, spec.arm_count)
        if not isinstance(self.terms.mechanism, KeyedMechanism | HitsMechanism):
            return False
        if self.has_fresh_coins != spec.privacy.has_arm_in_key:
            return False
        return self.has_layout_of(len(self.cells)) if self.has_fresh_coins else self.has_layout_of(1, spec.arm_count)

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        keys = np.zeros(len(coins), np.int64)
        return Arms(self.layout.find_groups(self.layout.hashes(coins, keys), keys))

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return rewards with the arm as key if reports have coins of their own, else as the group of one key."""
        if self.has_fresh_coins:
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
