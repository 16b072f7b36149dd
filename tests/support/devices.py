"""Devices in tests: ledgers that are paid from, and time that passes only when somebody waits."""

from dataclasses import dataclass, field

import pytest

from privateer_client import exchange, pace
from privateer_client.account import Payment
from privateer_client.ledger import Ledger

DOOR = "http://s/reports"


def pay(ledger: Ledger, payment: Payment, body: bytes = b"sealed") -> bytes:
    """Pay for a report that is there already."""
    return ledger.pay(payment, DOOR, lambda: body)


@dataclass
class StillTime:
    """A clock that stands still but for the pauses that are taken, which take no time."""

    now: float = 1000.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


def still(patch: pytest.MonkeyPatch) -> StillTime:
    """Have devices go by a still clock."""
    time = StillTime()
    patch.setattr(pace, "monotonic", lambda: time.now)
    patch.setattr(exchange, "sleep", time.sleep)
    patch.setattr(exchange, "async_sleep", time.async_sleep)
    return time
