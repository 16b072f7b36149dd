"""Decisions of policies: arms, points, and plays of actions; and their ages, if reports contain them.

A report with the coins of a choice has the age of the decision, too: its reader needs the policy that interprets the
coins. The age is the number of versions between that policy and the round that takes the report. It is public, as the
time of the report is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from privateer_core.arrays import Array, Ints
from privateer_core.privacy.terms import JUMP, Terms

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
