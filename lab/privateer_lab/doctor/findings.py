"""What the doctor finds: a line a check."""

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from privateer.text import printable


class Level(IntEnum):
    """How bad a finding is."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Finding:
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


class Findings:
    """What was found of one service, in order.

    Parameters
    ----------
    service
        ``server`` or ``shuffler``.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.all: list[Finding] = []

    def ok(self, check: str, detail: str) -> None:
        """Add what is fine."""
        self.all.append(Finding(self.service, check, Level.OK, detail))

    def warn(self, check: str, detail: str, remedy: str) -> None:
        """Add what somebody should look at by day."""
        self.all.append(Finding(self.service, check, Level.WARN, detail, remedy))

    def fail(self, check: str, detail: str, remedy: str) -> None:
        """Add what keeps the service from its work, or breaks what it promises."""
        self.all.append(Finding(self.service, check, Level.FAIL, detail, remedy))

    @property
    def worst(self) -> Level:
        """The worst finding so far."""
        return max((one.level for one in self.all), default=Level.OK)
