"""What the doctor finds: a line a check."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from privateer_core.errors import printable

T = TypeVar("T")
_LOOKS: Final = 4
"""A round may close between two looks at the files of a service that runs; it does not again and again."""
_LOOK_SECONDS: Final = 1.0


class Level(IntEnum):
    """How bad a finding is."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Check:
    """One line.

    Attributes
    ----------
    service, check
        What was looked at.
    level
        How bad it is.
    detail
        What was found, in a sentence without a key or anything about people.
    remedy
        What to do about it; empty if it is fine.
    """

    service: str
    check: str
    level: Level
    detail: str
    remedy: str = ""

    def line(self) -> str:
        """Return it for people."""
        then = f" ({self.remedy})" if self.remedy else ""
        said = f"{self.level.name.lower():<4}  {self.service:<8}  {self.check:<11}  {self.detail}{then}"
        return printable(said)

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self) | {"level": self.level.name.lower()}


class Checkup:
    """What was found of one service, in order.

    Parameters
    ----------
    service
        ``server`` or ``shuffler``.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.all: list[Check] = []

    def ok(self, check: str, detail: str) -> None:
        """Add what is fine."""
        self.all.append(Check(self.service, check, Level.OK, detail))

    def warn(self, check: str, detail: str, remedy: str) -> None:
        """Add what somebody should look at by day."""
        self.all.append(Check(self.service, check, Level.WARN, detail, remedy))

    def fail(self, check: str, detail: str, remedy: str) -> None:
        """Add what keeps the service from its work, or breaks what it promises."""
        self.all.append(Check(self.service, check, Level.FAIL, detail, remedy))

    def settled(self, look: Callable[["Checkup"], T], *, once: bool) -> T:
        """Add what a look at several files finds. Unless ``once``, look again before anything is told but that is fine.

        A service that runs may change one file after another was read.
        """
        for turn in range(_LOOKS):
            seen = Checkup(self.service)
            result = look(seen)
            if once or seen.worst is Level.OK or turn == _LOOKS - 1:
                break
            time.sleep(_LOOK_SECONDS)
        self.all += seen.all
        return result

    @property
    def worst(self) -> Level:
        """The worst finding so far."""
        return max((one.level for one in self.all), default=Level.OK)
