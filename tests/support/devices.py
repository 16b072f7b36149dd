"""Devices in tests: ledgers that are paid from, and time that passes only in pauses."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from privateer_client import async_client, transport
from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation
from privateer_core.clock import SystemClock
from privateer_core.privacy.terms_verification import Limits

ENDPOINT = "http://s/reports"
EVERYTHING = Limits(
    math.inf, 0.5, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True
)
"""The limits of an application that does not protect its people: the checks of the publication are all there is."""


def pay(ledger: Ledger, payment: Payment, body: bytes = b"sealed") -> bytes:
    """Pay for a report that is there already."""
    return ledger.pay(payment, ENDPOINT, lambda: body)


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
    """Make devices go by a still clock."""
    time = StillTime()
    patch.setattr(SystemClock, "monotonic", lambda _: time.now)
    patch.setattr(SystemClock, "now", lambda _: time.now)
    patch.setattr(transport, "sleep", time.sleep)
    patch.setattr(async_client, "sleep", time.async_sleep)
    return time


class Drawn(Ledger):
    """The ledger of a device that was drawn, or not: its number has a place in the order of a publication's draw."""

    def __init__(self, path: Path, publication: bytes, place: int) -> None:
        super().__init__(path)
        policy = Participation(publication, "test", EVERYTHING).policy
        assert policy.draw is not None
        self._number = int(
            msgspec.structs.replace(policy.draw, start=0, places=policy.draw.people).select_participants()[place]
        )

    def draw_number(self, experiment: str, seed: int, n_participants: int) -> int:
        return self._number
