"""Policies, by which devices decide and report, their decisions, and the analyzers of reports on these.

Policies are public and immutable. A report with the coins of a choice has the age of the decision, too: its reader
needs the policy that interprets the coins. The age is the number of versions between that policy and the round that
takes the report. It is public, as the time of the report is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, TypeAlias, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import Malformed
from privateer_core.mechanisms import KeyedMechanism, Mechanism
from privateer_core.mechanisms.tiered_symbol import TieredTotal
from privateer_core.primitives.contributions import Contributions, KeyedValues, TieredSums
from privateer_core.primitives.public_coins import UNIT, Draw, EarlierChoices, Layout
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import JUMP, Terms
from privateer_core.privacy.trust import Crowd, NoiseOrigin
from privateer_core.spec.reward import GuardedReward, Reward

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView


class Analyzer(Protocol):
    """An analyzer of reports on the decisions of a policy."""

    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        """Parse reports and return their total; `OutOfRange` if they are not reports of the round's mechanism."""
        ...

    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        """Draw a release of participants with these contributions."""
        ...


class DirectAnalyzer(Analyzer):
    """Sums reports that do not depend on the deciding policy."""

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        return mechanism.add(mechanism.empty(), mechanism.parse(rows))

    @override
    def simulate(self, mechanism: Any, contributions: Any, rng: "np.random.Generator") -> Any:
        return mechanism.simulate(contributions, rng)


@dataclass(frozen=True)
class ChoiceAnalyzer(Analyzer):
    """Sums reports by the groups of their coins under an earlier policy."""

    choices: Layout  # the layout of the coins at the round's keys
    leaves_out: bool = False  # whether the last group is no group of the round: of coins with unknown choices

    @classmethod
    def from_layouts(cls, layout: Layout, earlier: Layout) -> Self:
        """Return the analyzer of a round with this layout, for coins that chose by an earlier one at the same keys.

        No coins chose groups that were added since.
        """
        thresholds = np.full((layout.keys, layout.groups - 1), UNIT, np.uint32)
        thresholds[:, : earlier.groups - 1] = earlier.thresholds
        return cls(EarlierChoices(layout.seed, thresholds, earlier, np.arange(layout.keys)))

    @override
    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        recoded = self._with_choices(mechanism)
        return self._drop_last_group(recoded.add(recoded.empty(), recoded.parse(rows)))

    @override
    def simulate(self, mechanism: Any, contributions: KeyedValues, rng: "np.random.Generator") -> Any:
        """Draw a release with the choices' groups; participants with unknown choices are left out."""
        if self.leaves_out:
            is_unknown = (self.choices.thresholds[:, -1] == 0)[contributions.keys] & (contributions.keys >= 0)
            groups = np.where(is_unknown, self.choices.groups - 1, contributions.groups)
            contributions = msgspec.structs.replace(contributions, groups=groups)
        return self._drop_last_group(self._with_choices(mechanism).simulate(contributions, rng))

    def _with_choices(self, mechanism: Mechanism) -> Any:
        return msgspec.structs.replace(mechanism, layout=self.choices)

    def _drop_last_group(self, total: Any) -> Any:
        """Return a total or a release without the last group, if that is left out."""
        if not self.leaves_out:
            return total
        if isinstance(total, TieredTotal):
            return TieredTotal(tuple(map(self._drop_last_group, total.tiers)))
        if isinstance(total, TieredSums):
            return TieredSums.pool(tuple(map(self._drop_last_group, total.tiers)))
        hits = total.hits if total.hits.ndim == 1 else total.hits[:, :-1]
        return msgspec.structs.replace(total, sums=total.sums[:, :-1], counts=total.counts[:, :-1], hits=hits)


AGE_SIZE: Final = 2
"""Bytes of an age."""
AGE_MAX: Final = 65_535


@dataclass(frozen=True, repr=False)
class Arms:
    """An arm for each participant.

    Attributes
    ----------
    arms
        Shape (n,), int64: indices of the experiment's arms. An arm may reveal information about its participant.
    """

    arms: Ints

    def __len__(self) -> int:
        return len(self.arms)


@dataclass(frozen=True)
class Plays:
    """Actions that are played for the whole population; they are public.

    Attributes
    ----------
    actions
        Shape (s,), int64: rows of the experiment's actions, ascending.
    times
        Shape (s,), int64: number of plays of each.
    """

    actions: Ints
    times: Ints


@dataclass(frozen=True, repr=False)
class Points(Arms):
    """Points for each participant, in the directions of their arms.

    Attributes
    ----------
    points
        Shape (n, k, d), float64: one or two points a participant.
    """

    NAMES: ClassVar[tuple[str, str]] = ("first", "second")
    """Names of the two points of a participant."""

    points: Array

    @property
    def first_points(self) -> list[float] | dict[str, list[float]]:
        """The point of the first participant, as coordinates; two points by name."""
        first: list[list[float]] = self.points[0].tolist()
        return first[0] if len(first) == 1 else dict(zip(self.NAMES, first, strict=True))


Decisions: TypeAlias = Arms | Plays


class Reported(Protocol):
    """An object with the format of a round's messages, such as a policy."""

    terms: Terms

    @property
    def tells_age(self) -> bool:
        """Whether a report contains the age of its decision."""
        ...


def message_size(policy: Reported) -> int:
    """Return the size in bytes of a message before sealing: a report, with its age if `tells_age`."""
    return policy.terms.mechanism.report_size + AGE_SIZE * policy.tells_age


def sealed_size(policy: Reported) -> int:
    """Return the size in bytes of a message as a device sends it, with its age if `tells_age`."""
    return policy.terms.mechanism.sealed_size + AGE_SIZE * policy.tells_age


def decision_age(version: int, decided: int) -> int | None:
    """Return the age, in a round of this version, of a decision of the version ``decided``; None if it is unknown.

    A server that lost rounds continues after the next multiple of `JUMP`: decisions of lost rounds are unknown.
    """
    is_same_history = (version - 1) // JUMP == (decided - 1) // JUMP
    return version - decided if is_same_history and 0 <= version - decided <= AGE_MAX else None


def prefix_ages(reports: list[bytes], ages: Ints) -> list[bytes]:
    """Return the reports of n participants, each prefixed with its age, (n,)."""
    return [age.to_bytes(AGE_SIZE, "little") + report for age, report in zip(ages.tolist(), reports, strict=True)]


def group_by_age(reports: Iterable[bytes]) -> dict[int, bytes]:
    """Return the concatenated reports by the age in their prefix, which is removed."""
    reports_by_age: dict[int, list[bytes]] = {}
    for report in reports:
        reports_by_age.setdefault(int.from_bytes(report[:AGE_SIZE], "little"), []).append(report[AGE_SIZE:])
    return {age: b"".join(chunks) for age, chunks in reports_by_age.items()}


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
    has_fresh_coins
        Whether a report has coins of its own, drawn when it is made; else it carries the coins of the choice.
    is_mixture
        Whether a learner must know the policies that decided (`with_decision_policies`).
    deciders
        The policies that decided, with the share of the round's reports on decisions of each; empty: this policy alone.
        It is for learners, and no field, so that it is not encoded.
    """

    version: int
    terms: Terms
    if TYPE_CHECKING:

        @property
        def has_fresh_coins(self) -> bool: ...  # noqa: D102
        @property
        def is_mixture(self) -> bool: ...  # noqa: D102

    else:  # where a property stood no field could have its name
        has_fresh_coins, is_mixture = True, False

    cohort: str = ""
    draw: Draw | None = None
    deciders: tuple[tuple[Self, float], ...] = ()

    @property
    def weighted_deciders(self) -> tuple[tuple[Self, float], ...]:
        """The policies that decided, with the share of the round's reports on decisions of each."""
        return self.deciders or ((self, 1.0),)

    @cached_property
    def tells_age(self) -> bool:
        """Whether a report contains the age of its decision in versions, as when it has the coins of the choice.

        Reports of a batch never do: ages would distinguish them. Nor do reports of a source, whose arms are past, nor
        shares, which servers add up without reading them.
        """
        trust = self.terms.trust
        is_sum_alone = trust.crowd is Crowd.BATCH or trust.noise is NoiseOrigin.SERVERS
        return not (self.has_fresh_coins or self.cohort or is_sum_alone)

    @property
    def is_policy_independent(self) -> bool:
        """Whether a report does not depend on the deciding policy, as when the arm is in its key."""
        return self.has_fresh_coins

    @property
    def n_undecided_bins(self) -> int | None:
        """The number of bins in which coins choose the arm; None if the algorithm has no bins."""
        return None

    def accepts_decisions_of(self, decided: int) -> bool:
        """Whether the round takes reports on decisions of the policy of version ``decided``."""
        if self.tells_age:
            return decision_age(self.version, decided) is not None
        return decided <= self.version if self.is_policy_independent else decided == self.version

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

    def with_decision_policies(self, decided: Sequence[tuple[Self, float]]) -> Self:
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
    def contribute(self, contexts: Array, coins: Coins, decisions: Any, rewards: Array) -> Contributions:
        """Return the contributions of n participants about their decisions and rewards.

        Parameters
        ----------
        contexts, coins
            The arguments of `decide`; with `has_fresh_coins`, the coins are drawn for the reports.
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

    def contribute_past_arms(self, contexts: Array, coins: Coins, arms: Ints, rewards: Array) -> KeyedValues:
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
