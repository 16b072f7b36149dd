"""The base of all policies: public and immutable; a device decides and reports by one."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.errors import Malformed
from privateer_core.mechanisms import KeyedMechanism
from privateer_core.policies.analyzers import Analyzer, ByChoices, Counted
from privateer_core.policies.decisions import Arms, age_of
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import GuardedReward, Reward

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
Ints = NDArray[np.int64]


class Policy(ABC):
    """The policy of one round; vectorised over people, so that a device has n = 1.

    A subclass is a frozen dataclass, whose fields travel by `privateer_core.codec`. Where a field has the name of what
    has a value here, and no default of its own, it is declared as ``= field()``.

    Attributes
    ----------
    version
        The policy's version, from 1.
    terms
        How reports of the round are randomized.
    cohort
        The cohort that reports: a source's name; empty for the experiment's own people.
    draw
        The public draw of the people who are asked; None: whoever comes is asked.
    fresh_coins
        Whether a report has coins of its own, drawn when it is made; else it carries the coins of the choice.
    mixes
        Whether a learner must know which policies decided what the round's reports are about (`followed`).
    deciders
        Policies that decided what the round's reports are about, and the share of the reports on decisions of each;
        empty, as it is for everybody but learners: this one did. No field, so that it does not travel.
    """

    version: int
    terms: Terms
    if TYPE_CHECKING:

        @property
        def fresh_coins(self) -> bool: ...  # noqa: D102
        @property
        def mixes(self) -> bool: ...  # noqa: D102

    else:  # where a property stood no field could have its name
        fresh_coins, mixes = True, False

    cohort: str = ""
    draw: Draw | None = None
    deciders: tuple[tuple[Self, float], ...] = ()

    @property
    def decided(self) -> tuple[tuple[Self, float], ...]:
        """The policies that decided what the round's reports are about, with the share of each."""
        return self.deciders or ((self, 1.0),)

    @property
    def tells_age(self) -> bool:
        """Whether a report says how many versions ago its decision was made: where it carries the coins of the choice.

        Those of a batch never do: their ages would tell them apart.
        """
        return not (self.fresh_coins or self.terms.trust.batched)

    @property
    def timeless(self) -> bool:
        """Whether a report means the same whichever policy decided, as where the arm is in its key."""
        return self.fresh_coins

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        if self.tells_age:
            return age_of(self.version, decided) is not None
        return decided <= self.version if self.timeless else decided == self.version

    def analyzer(self, earlier: Self) -> Analyzer:
        """Return what adds reports on decisions of an ``earlier`` policy, or of this one, to the round's total."""
        same = earlier.version == self.version or not self.tells_age
        return Counted() if same else self.analyzer_of(earlier)

    def analyzer_of(self, earlier: Self) -> Analyzer:
        """Return what counts reports that carry the coins of a choice by an ``earlier`` policy.

        Here both policies have the same keys, and the mechanism's layout says what coins choose.
        """
        now, then = (cast(KeyedMechanism, one.terms.mechanism).layout for one in (self, earlier))
        return ByChoices.of(now, then)

    def followed(self, decided: Sequence[tuple[Self, float]]) -> Self:
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        Parameters
        ----------
        decided
            Policies, and the share of the round's reports that are on decisions of each.
        """
        if not self.mixes or all(policy.version == self.version for policy, _ in decided):
            return self
        made, whole = replace(cast(Any, self)), sum(share for _, share in decided)
        object.__setattr__(made, "deciders", tuple((policy, share / whole) for policy, share in decided))
        return cast(Self, made)

    def check(self, spec: Any) -> None:
        """Refuse a policy that no learner makes: a device must not crash on, or be steered by, a malformed one.

        Raises
        ------
        Malformed
            If its parts contradict each other or the spec.
        """
        if not self.fits(spec):
            raise Malformed("not a policy of this algorithm", remedy="fetch the policy again")

    def fits(self, spec: Any) -> bool:
        """Whether a learner makes it: types, shapes and ranges are right, and it asks no more than the spec."""
        raise NotImplementedError

    def question(self, spec: Any) -> type[Question]:
        """Return what the round asks; here what the algorithm does."""
        kind: type[Question] = spec.question
        return kind

    def asks_about(self, keys: int, groups: int = 1) -> bool:
        """Whether reports are about so many keys, of so many groups each."""
        layout = getattr(self.terms.mechanism, "layout", None)
        return layout is not None and (layout.keys, layout.groups) == (keys, groups)

    @abstractmethod
    def decide(self, contexts: Array, coins: Coins) -> Any:
        """Decide for n people with contexts (n, d) in [0, 1] and coins (n,).

        Raises
        ------
        InputError
            If a number that matters is not finite.
        """

    @abstractmethod
    def contribute(self, contexts: Array, coins: Coins, decisions: Any, rewards: Array) -> KeyedValues | BoundedVectors:
        """Return what n people have to contribute about their decisions and rewards.

        Parameters
        ----------
        contexts, coins
            The arguments of `decide`; where `fresh_coins` is set, coins drawn for the reports alone.
        decisions
            What `decide` returned.
        rewards
            What `read` returns, person by person; of one reward in [0, 1] the shape is (n,).

        Raises
        ------
        InputError
            If the shape of the rewards is another.
        """

    @abstractmethod
    def shown(self, spec: Any, decisions: Any) -> Any:
        """Return what the application of the first person is given."""

    @abstractmethod
    def read(self, spec: Any, reward: Any) -> tuple[Array, bool]:
        """Read one person's reward from an application; also tell whether it is beyond its bounds.

        Raises
        ------
        InputError
            If it is not what the policy asks for. The message carries no value.
        """

    @abstractmethod
    def view(self, spec: Any) -> "PolicyView":
        """Return what the policy is, for people and other languages."""


class ArmsPolicy(Policy):
    """A policy that gives every person one of the spec's options, which have names, and reads one reward."""

    @override
    def shown(self, spec: Any, decisions: Arms) -> str:
        return str(spec.options[int(decisions.arms[0])])

    @override
    def read(self, spec: Any, reward: Any) -> tuple[Array, bool]:
        kind: Reward | GuardedReward = spec.outcome
        return kind.read(reward)


class Recalling(Protocol):
    """A policy whose experiment may have sources: people who report on arms that they played before."""

    def recall(self, contexts: Array, coins: Coins, arms: NDArray[np.int64], rewards: Array) -> KeyedValues:
        """Return what n people of a source have to contribute about arms (n,) that they played before."""
        ...


class Comparing(Protocol):
    """A policy whose experiment estimates differences between arms, among all people or groups of them."""

    def groups(self, contexts: Array) -> NDArray[np.int64]:
        """Return the group of each of n people, (n,)."""
        ...

    def comparisons(self, spec: Any) -> Iterator[tuple[str, int | None, int, int]]:
        """Yield what is compared: an estimate's name, a group or None for all people, an arm, and the other arm."""
        ...


class Boxes(Protocol):
    """A policy that treats everybody in a box of contexts alike, so that people may be simulated box by box."""

    @property
    def shares(self) -> Array:
        """Probability of each arm in every box, over coins, shape (boxes, arms)."""
        ...

    @property
    def undecided(self) -> NDArray[np.int64]:
        """Boxes in which coins choose the arm, shape (undecided,); in the others it is the one with share 1."""
        ...

    def names(self) -> list[Hashable]:
        """Name the boxes: the same box has the same name in every policy of an experiment."""
        ...

    def edges(self) -> tuple[Array, Array]:
        """Return the lower and upper corners of the boxes, (boxes, d) each."""
        ...

    def count(self, played: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Count what people contribute.

        Parameters
        ----------
        played
            Shape (boxes, arms, 2): people by box, arm and reward 0 or 1.

        Returns
        -------
        People by key, group and value 0 or 1, (keys, groups, 2), and the number of people without a key.
        """
        ...
