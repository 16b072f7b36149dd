"""Decisions of policies: arms, points, and plays of actions; and their ages, where reports tell them.

Where coins that chose an arm travel with the report, so does the age of its decision: a reader of such a report needs
the policy that gave the coins their meaning. The age is the number of versions between that policy and the round that
takes the report. It is public, as the time of the report is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.privacy.terms import JUMP, Terms

AGE_SIZE: Final = 2
"""Bytes of an age."""
AGE_MAX: Final = 65_535


@dataclass(frozen=True, repr=False)
class Arms:
    """An arm for each person.

    Attributes
    ----------
    arms
        Shape (n,), int64: indices of the experiment's arms. An arm may say something about its person.
    """

    arms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arms)


@dataclass(frozen=True)
class Plays:
    """Actions that are played for everybody, no matter who is asked about them: public.

    Attributes
    ----------
    actions
        Shape (s,), int64: rows of the experiment's actions, rising.
    times
        Shape (s,), int64: how often each is played.
    """

    actions: NDArray[np.int64]
    times: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Points(Arms):
    """Points for each person, in the directions of their arms.

    Attributes
    ----------
    points
        Shape (n, k, d), float64: one point a person, or two.
    """

    NAMES: ClassVar[tuple[str, str]] = ("first", "second")
    """What the two points of a person are called."""

    points: NDArray[np.float64]

    @property
    def shown(self) -> list[float] | dict[str, list[float]]:
        """What the application of the first person is given: a point's coordinates, or those of each of the two."""
        first: list[list[float]] = self.points[0].tolist()
        return first[0] if len(first) == 1 else dict(zip(self.NAMES, first, strict=True))


Decisions: TypeAlias = Arms | Plays


class Reported(Protocol):
    """An object that says of what a round's messages are made, as a policy does."""

    terms: Terms

    @property
    def tells_age(self) -> bool:
        """Whether a report says how old its decision is."""
        ...


def message_size(policy: Reported) -> int:
    """Return the bytes of one message before it is sealed: a report, and its age where the policy has it told."""
    return policy.terms.mechanism.report_size + AGE_SIZE * policy.tells_age


def age_of(version: int, decided: int) -> int | None:
    """Return the age, in a round of this version, of what the version ``decided`` decided; None: nobody may know it.

    A server that lost some of its rounds goes on beyond the next multiple of `JUMP`: what they decided is not known.
    """
    same = (version - 1) // JUMP == (decided - 1) // JUMP
    return version - decided if same and 0 <= version - decided <= AGE_MAX else None


def with_ages(reports: list[bytes], ages: NDArray[np.int64]) -> list[bytes]:
    """Return the reports of n people, each after its age, (n,)."""
    return [age.to_bytes(AGE_SIZE, "little") + report for age, report in zip(ages.tolist(), reports, strict=True)]


def by_age(reports: Iterable[bytes]) -> dict[int, bytes]:
    """Sort reports that come after their ages; return them without, put together, by age."""
    parts: dict[int, list[bytes]] = {}
    for report in reports:
        parts.setdefault(int.from_bytes(report[:AGE_SIZE], "little"), []).append(report[AGE_SIZE:])
    return {age: b"".join(some) for age, some in parts.items()}
