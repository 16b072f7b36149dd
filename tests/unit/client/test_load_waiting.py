"""A load run whose server went away asks now and then, not all the time."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.phased import PhasedPopulation
from privateer_client.load import phases
from privateer_server.rounds import first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()


@dataclass
class Away:
    """Services that take one phase and then do not answer."""

    questions: int = 0
    sent: int = 0
    name: str = "test"

    async def fetch(self, old: bytes | None) -> bytes | None:
        self.questions += 1
        await asyncio.sleep(0)
        return first_round(phased_spec(), KEY).publication if old is None else None

    async def send(self, *report: Any) -> tuple[int, dict[str, int]]:
        return int(report[2]), {}


async def test_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "_PATIENCE", 1.0)
    wire: Any = Away()
    result = await phases.PhasesDriver(wire, PhasedPopulation(name="linear"), 0).run(None, 1, 10, lambda _: None)
    assert (result.over, result.accepted) == (False, 2)
    assert 2 <= wire.questions <= 7
