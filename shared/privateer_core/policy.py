"""What a policy is: public and immutable, decided with and reported by on the device. The algorithms implement it."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.policy_view import PolicyView
from privateer_core.contributions import BoundedVectors, KeyedValues
from privateer_core.decisions import Decisions
from privateer_core.draw import Draw
from privateer_core.mechanisms import Mechanism
from privateer_core.terms import Terms

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]


class Policy(Protocol):
    """The policy of one round; vectorised over people, so that a device has n = 1."""

    @property
    def version(self) -> int:
        """The policy's version, from 1."""
        ...

    @property
    def cohort(self) -> str:
        """Whose turn it is to report: a source's name; empty for the experiment's own people."""
        ...

    @property
    def terms(self) -> Terms:
        """How reports of the round are randomized."""
        ...

    @property
    def draw(self) -> Draw | None:
        """The public draw of the people who are asked; None: whoever comes is asked."""
        ...

    @property
    def fresh_coins(self) -> bool:
        """Whether a report has coins of its own, drawn when it is made; else it carries the coins of the choice."""
        ...

    @property
    def tells_age(self) -> bool:
        """Whether a report says how many versions ago its decision was made (`privateer_core.ages`)."""
        ...

    @property
    def mixes(self) -> bool:
        """Whether a learner must know which policies decided what the round's reports are about (`followed`)."""
        ...

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        ...

    def analyzer(self, earlier: Self) -> "Analyzer":
        """Return what adds reports on decisions of an ``earlier`` policy, or of this one, to the round's total."""
        ...

    def followed(self, decided: Sequence[tuple[Self, float]]) -> Self:
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        Parameters
        ----------
        decided
            Policies, and the share of the round's reports that are on decisions of each.
        """
        ...

    def check(self, spec: Any) -> None:
        """Refuse a policy that no learner makes: a device must not crash on, or be steered by, a malformed one.

        Raises
        ------
        Malformed
            If its parts contradict each other or the spec.
        """
        ...

    def decide(self, contexts: Array, coins: Coins) -> Any:
        """Decide for n people with contexts (n, d) in [0, 1] and coins (n,)."""
        ...

    def contribute(self, contexts: Array, coins: Coins, decisions: Any, rewards: Array) -> KeyedValues | BoundedVectors:
        """Return what n people have to contribute about their decisions and rewards.

        Parameters
        ----------
        contexts, coins
            The arguments of `decide`; where `fresh_coins` is set, coins drawn for the reports alone.
        decisions
            What `decide` returned.
        rewards
            What `read` returns, person by person.
        """
        ...

    def shown(self, spec: Any, decisions: Any) -> Any:
        """Return what the application of the first person is given."""
        ...

    def read(self, spec: Any, reward: Any) -> tuple[Array, bool]:
        """Read one person's reward from an application; also tell whether it is beyond its bounds.

        Raises
        ------
        InputError
            If it is not what the policy asks for. The message carries no value.
        """
        ...

    def view(self, spec: Any) -> PolicyView:
        """Return what the policy is, for people and other languages."""
        ...


class Analyzer(Protocol):
    """What counts reports on the decisions of one policy."""

    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        """Parse reports and return their total.

        Raises
        ------
        OutOfRange
            If they are not reports of the round's mechanism.
        """
        ...

    def simulate(self, mechanism: Any, contributions: Any, rng: np.random.Generator) -> Any:
        """Draw a release of people who decided so."""
        ...


class Counted:
    """Counts reports that mean the same whichever policy decided."""

    def tally(self, mechanism: Mechanism, rows: bytes) -> Any:
        """Parse reports and return their total."""
        return mechanism.add(mechanism.empty(), mechanism.parse(rows))

    def simulate(self, mechanism: Any, contributions: Any, rng: np.random.Generator) -> Any:
        """Draw a release of people who decided so."""
        return mechanism.simulate(contributions, rng)


class OfAnyRound:
    """A policy whose reports mean the same whichever policy decided, as where the arm is in their key."""

    version: int
    tells_age: ClassVar[bool] = False
    mixes: ClassVar[bool] = False

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        return decided <= self.version

    def analyzer(self, _earlier: Self) -> Counted:
        """Return what counts the round's reports."""
        return Counted()

    def followed(self, _decided: Sequence[tuple[Self, float]]) -> Self:
        """Return the policy: a learner reads reports on all decisions alike."""
        return self


class OfItsRound(OfAnyRound):
    """A policy whose round takes reports on its own decisions alone."""

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        return decided == self.version


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


__all__ = ["Analyzer", "Boxes", "Comparing", "Counted", "Decisions", "OfAnyRound", "OfItsRound", "Policy", "Recalling"]
