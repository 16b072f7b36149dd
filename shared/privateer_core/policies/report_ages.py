"""Ages of decisions: where coins that chose an arm travel with the report, so does the age of its decision.

Whoever reads such a report needs the policy that gave the coins their meaning. The age is the number of versions
between that policy and the round that takes the report. It is public, as the time of the report is.
"""

from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from privateer_core.privacy.record import JUMP
from privateer_core.privacy.terms import Terms

AGE_SIZE: Final = 2
"""Bytes of an age."""
AGE_MAX: Final = 65_535


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
