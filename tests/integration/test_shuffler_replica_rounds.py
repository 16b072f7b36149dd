"""Many people report to two shuffler processes while round after round ends: everybody gets an answer."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.problem import read_slug
from tests.integration.test_shuffler_replica_kills import Replicas
from tests.support.postgres import cluster
from tests.support.senders import Signing
from tests.support.shufflers import SharedShufflers
from tests.unit.shuffler.fake_server import FakeServer, body_of, listening
from tests.unit.shuffler.helpers import sealed_reports

pytestmark = pytest.mark.postgres
BATCH = 100
_SENDERS = 48
_LEARNING = 0.2
_PATIENCE = 10.0
"""Seconds without an answer after which a sender gives an upload up: the database answers in milliseconds."""


class Crowd:
    """Senders that report to the replicas in turn.

    Attributes
    ----------
    answers
        How often each was given: a status and a slug, or ``none``.
    """

    def __init__(self, server: FakeServer, urls: list[str], seconds: float) -> None:
        self._server, self._urls, self._end_time = server, urls, time.monotonic() + seconds
        self.answers: Counter[str] = Counter()
        self.version = 1

    async def come(self) -> None:
        """Report until the time is up, while the server publishes another version whenever it has a batch."""
        limits = httpx.Limits(max_connections=_SENDERS)
        async with httpx.AsyncClient(auth=Signing(), timeout=_PATIENCE, limits=limits) as client:
            await asyncio.gather(self._publish(), *(self._report(client, turn) for turn in range(_SENDERS)))

    async def _report(self, client: httpx.AsyncClient, turn: int) -> None:
        while time.monotonic() < self._end_time:
            turn += 1
            url = f"{self._urls[turn % len(self._urls)]}/experiments/spring/reports"
            try:
                answer = await client.post(url, content=body_of(self._server.header(), sealed_reports(1)))
            except httpx.TimeoutException:
                self.answers["none"] += 1
                continue
            self.answers[f"{answer.status_code} {read_slug(answer.content) if answer.is_error else ''}".strip()] += 1

    async def _publish(self) -> None:
        while time.monotonic() < self._end_time:
            if ("spring", self.version) in self._server.delivered:
                await asyncio.sleep(_LEARNING)  # whoever reports meanwhile does so for the round that ends
                self.version += 1
                self._server.publish(version=self.version, batch=BATCH)
            await asyncio.sleep(0.005)


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_every_upload_gets_an_answer_while_rounds_end(tmp_path: Path) -> None:
    """On a slow disk, and for long: uploads without an answer used to come within milliseconds of rounds' ends."""
    seconds = float(os.environ.get("PRIVATEER_ROUNDS_SECONDS", "75"))
    with cluster(fsync="on") as postgres:
        shared = SharedShufflers.make(postgres, tmp_path)
        crowd = await _reporting(shared, seconds)
    print(f"{seconds:.0f} s, {crowd.version} rounds of {BATCH}: {dict(crowd.answers)}")
    assert crowd.answers["none"] == 0
    assert crowd.version > 1
    assert {answer.partition(" ")[0] for answer in crowd.answers} <= {"202", "409", "503"}


async def _reporting(shared: SharedShufflers, seconds: float) -> Crowd:
    shared.server.publish(batch=BATCH)
    with listening(shared.server) as url:
        at = Replicas(shared, url, deaths=0.0)
        try:
            crowd = Crowd(shared.server, list(at.public.values()), seconds)
            await crowd.come()
        finally:
            for name in at.public:
                at.processes.kill(name)
    return crowd
