"""What the doctor finds: a line a check."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from privateer_core.errors import SpecError, printable
from privateer_core.serving.store.database import Unreachable

T = TypeVar("T")
_LOOKS: Final = 10
"""A round may close while the files of a service that runs are read; it does not again and again."""
_LOOK_SECONDS: Final = 0.4


class Level(IntEnum):
    """How bad a finding is."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Check:
    """One line."""

    # service, check: what was looked at
    service: str
    check: str
    level: Level
    detail: str  # what was found, in a sentence without a key or anything about people
    remedy: str = ""  # what to do about it; empty if it is fine

    def line(self) -> str:
        """Return it for people."""
        then = f" ({self.remedy})" if self.remedy else ""
        return printable(f"{self.level.name.lower():<4}  {self.service:<8}  {self.check:<11}  {self.detail}{then}")

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self) | {"level": self.level.name.lower()}


class Checkup:
    """What was found of one service, in order."""

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

    def refuse(self, check: str, error: SpecError) -> None:
        """Add what a service would refuse at its start."""
        self.fail(check, error.detail, error.remedy or "correct it")

    def refuse_unreadable(self, check: str, detail: str, error: Exception, remedy: str) -> None:
        """Add what a store cannot read, with the reason where PostgreSQL gave it: that quotes no row."""
        self.fail(check, f"{detail}: {error}" if isinstance(error, Unreachable) else detail, remedy)

    def each(self, level: Level, check: str, names: Sequence[str], detail: str, remedy: str) -> None:
        """Add what several have in common, in one line that puts the first name for ``{}``; nothing without names."""
        if names:
            others = f", and so for {len(names) - 1:,} more" if len(names) > 1 else ""
            self.all.append(Check(self.service, check, level, detail.format(names[0]) + others, remedy))

    def settled(self, look: Callable[["Checkup"], T], *, once: bool) -> T:
        """Add what a look at several files or databases finds; unless ``once``, look again until all is fine.

        A service that runs may change one after another was read. After ten looks, or one that returns None since it
        cannot read them, what it finds is so.
        """
        for number in range(1, _LOOKS + 1):
            seen = Checkup(self.service)
            result = look(seen)
            if once or result is None or seen.worst is Level.OK or number == _LOOKS:
                break
            time.sleep(_LOOK_SECONDS)
        self.all += seen.all
        return result

    @property
    def worst(self) -> Level:
        """The worst finding so far."""
        return max((one.level for one in self.all), default=Level.OK)
