"""The base class of policies, by which devices decide and report; they are public and immutable."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from typing_extensions import override

from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import Malformed
from privateer_core.mechanisms import KeyedMechanism
from privateer_core.policies.analyzers import Analyzer, ChoiceAnalyzer, DirectAnalyzer
from privateer_core.policies.decisions import Arms, decision_age
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import FeatureValues, KeyedValues
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import GuardedReward, Reward

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView


class Policy(ABC):
    """The policy of a round, vectorized over participants; a device has n = 1.

    A subclass is a frozen dataclass, whose fields are encoded by `privateer_core.codec`. A field without a default that
    has the name of an attribute with a value here is declared as ``= field()``.

    Attributes
    ----------
    version
        The policy's version, from 1.
    terms
        How reports of the round are randomized.
    cohort
        The cohort that reports: a source's name; empty for the experiment's own participants.
    draw
        The public sample of invited participants; None: all are invited.
    fresh_coins
        Whether a report has coins of its own, drawn when it is made; else it carries the coins of the choice.
    is_mixture
        Whether a learner must know the policies that decided (`with_deciders`).
    deciders
        The policies that decided, with the share of the round's reports on decisions of each; empty: this policy alone.
        It is for learners, and no field, so that it is not encoded.
    """

    version: int
    terms: Terms
    if TYPE_CHECKING:

        @property
        def fresh_coins(self) -> bool: ...  # noqa: D102
        @property
        def is_mixture(self) -> bool: ...  # noqa: D102

    else:  # where a property stood no field could have its name
        fresh_coins, is_mixture = True, False

    cohort: str = ""
    draw: Draw | None = None
    deciders: tuple[tuple[Self, float], ...] = ()

    @property
    def weighted_deciders(self) -> tuple[tuple[Self, float], ...]:
        """The policies that decided, with the share of the round's reports on decisions of each."""
        return self.deciders or ((self, 1.0),)

    @property
    def tells_age(self) -> bool:
        """Whether a report contains the age of its decision in versions, as when it has the coins of the choice.

        Reports of a batch never do: ages would distinguish them. Nor do reports of a source, whose arms are past.
        """
        return not (self.fresh_coins or self.cohort or self.terms.trust.batched)

    @property
    def timeless(self) -> bool:
        """Whether a report does not depend on the deciding policy, as when the arm is in its key."""
        return self.fresh_coins

    @property
    def n_undecided_bins(self) -> int | None:
        """The number of bins in which coins choose the arm; None if the algorithm has no bins."""
        return None

    def accepts_decisions_of(self, decided: int) -> bool:
        """Whether the round takes reports on decisions of the policy of version ``decided``."""
        if self.tells_age:
            return decision_age(self.version, decided) is not None
        return decided <= self.version if self.timeless else decided == self.version

    def make_analyzer(self, earlier: Self) -> Analyzer:
        """Return the analyzer of reports on decisions of an ``earlier`` policy, or of this one."""
        has_same_meaning = earlier.version == self.version or not self.tells_age
        return DirectAnalyzer() if has_same_meaning else self.make_earlier_analyzer(earlier)

    def make_earlier_analyzer(self, earlier: Self) -> Analyzer:
        """Return the analyzer of reports with the coins of a choice by an ``earlier`` policy.

        The default is for policies with equal keys, whose mechanism's layout is that of the choice.
        """
        layout, earlier_layout = (cast(KeyedMechanism, policy.terms.mechanism).layout for policy in (self, earlier))
        return ChoiceAnalyzer.from_layouts(layout, earlier_layout)

    def with_deciders(self, decided: Sequence[tuple[Self, float]]) -> Self:
        """Return a copy for a learner whose reports are on decisions of several policies, or this policy alone.

        Parameters
        ----------
        decided
            Policies, with the share of the round's reports on decisions of each.
        """
        if not self.is_mixture or all(policy.version == self.version for policy, _ in decided):
            return self
        followed, total = replace(cast(Any, self)), sum(share for _, share in decided)
        object.__setattr__(followed, "deciders", tuple((policy, share / total) for policy, share in decided))
        return cast(Self, followed)

    def check(self, spec: Any) -> None:
        """Refuse as `Malformed` a policy that contradicts itself or the spec, so that it cannot harm a device."""
        if not self.is_compatible(spec):
            raise Malformed("not a policy of this algorithm", remedy="fetch the policy again")

    def is_compatible(self, spec: Any) -> bool:
        """Whether types, shapes and ranges are valid, and reports are those of the spec."""
        raise NotImplementedError

    def question_type(self, spec: Any) -> type[Question]:
        """Return the type of the round's question; the default is the algorithm's."""
        kind: type[Question] = spec.question
        return kind

    def has_layout_of(self, keys: int, groups: int = 1) -> bool:
        """Whether the mechanism has this number of keys, and of groups of each."""
        layout = getattr(self.terms.mechanism, "layout", None)
        return layout is not None and (layout.keys, layout.groups) == (keys, groups)

    @abstractmethod
    def decide(self, contexts: Array, coins: Coins) -> Any:
        """Return decisions for contexts (n, d) in [0, 1] and coins (n,); refuse a relevant number not finite."""

    @abstractmethod
    def contribute(
        self, contexts: Array, coins: Coins, decisions: Any, rewards: Array
    ) -> KeyedValues | FeatureValues | BoundedVectors:
        """Return the contributions of n participants about their decisions and rewards.

        Parameters
        ----------
        contexts, coins
            The arguments of `decide`; with `fresh_coins`, the coins are drawn for the reports.
        decisions
            The result of `decide`.
        rewards
            The results of `read`, by participant; the shape of single rewards in [0, 1] is (n,).

        Raises
        ------
        InputError
            If the rewards have another shape.
        """

    @abstractmethod
    def present_decision(self, spec: Any, decisions: Any) -> Any:
        """Return the first participant's decision, as applications get it."""

    @abstractmethod
    def read(self, spec: Any, reward: Any) -> tuple[Array, bool]:
        """Parse a participant's reward from an application; also return whether it is beyond its bounds.

        Raises
        ------
        InputError
            If it is not the policy's type of outcome. The message contains no value.
        """

    @abstractmethod
    def view(self, spec: Any) -> "PolicyView":
        """Return a description of the policy, for readers and other languages."""


class ArmsPolicy(Policy):
    """A policy that gives every participant a named option of the spec, and reads a single reward."""

    @override
    def present_decision(self, spec: Any, decisions: Arms) -> str:
        return str(spec.options[int(decisions.arms[0])])

    @override
    def read(self, spec: Any, reward: Any) -> tuple[Array, bool]:
        kind: Reward | GuardedReward = spec.outcome
        return kind.read(reward)


class Recalling(Protocol):
    """A policy whose experiment may have sources: participants who report on arms that they had before."""

    def recall(self, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
        """Return the contributions of n participants of a source about their earlier arms (n,)."""
        ...


class Comparing(Protocol):
    """A policy whose experiment estimates differences between arms, among all participants or by group."""

    def groups(self, contexts: Array) -> Ints:
        """Return the group of each of n participants, (n,)."""
        ...

    def comparisons(self, spec: Any) -> Iterator[tuple[str, int | None, int, int]]:
        """Yield comparisons: an estimate's name, a group or None for all participants, an arm, and the other arm."""
        ...
