"""What tests ask a shuffler."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from privateer_core.clock import Clock
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import Header
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.pool.round_file import RoundStore
from tests.unit.shuffler.fake_server import SIZE, FakeServer, body_of


@dataclass
class Shuffler:
    """A shuffler behind a client, and the server it forwards to."""

    client: httpx.AsyncClient
    server: FakeServer

    async def post(self, header: Header, sealed: list[bytes], name: str | None = None) -> httpx.Response:
        url = f"/experiments/{name or header.experiment}/reports"
        return await self.client.post(url, content=body_of(header, sealed))

    async def facts(self, name: str = "spring") -> dict[str, object]:
        return dict((await self.client.get(f"/experiments/{name}")).json())

    async def reaches(self, version: int, name: str = "spring") -> None:
        """Wait until the shuffler knows a version."""
        async with asyncio.timeout(20):
            while (await self.facts(name))["version"] != version:
                await asyncio.sleep(0.01)

    async def metric(self, line: str) -> float:
        """The value of a line of the metrics, 0 if it is not there."""
        text = (await self.client.get("/metrics")).text
        start = f"privateer_shuffler_{line} "
        return next((float(row.removeprefix(start)) for row in text.splitlines() if row.startswith(start)), 0.0)

    async def refused(self, reason: str) -> float:
        """How many reports were refused for a reason, as the metrics say."""
        return await self.metric(f'reports_refused_total{{reason="{reason}"}}')


def pool_of(store: RoundStore | None, below: Callable[[int], int] | None = None, clock: Clock | None = None) -> Pool:
    """A pool of what a file holds, which takes reports without tokens."""
    assert store is not None
    return Pool(PlacedRound(store, below=below, clock=clock))


def sealed_reports(count: int) -> list[bytes]:
    """Bytes that look like sealed reports; the shuffler cannot tell."""
    return [os.urandom(SIZE) for _ in range(count)]


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def assert_problem(response: httpx.Response, status: int, slug: str) -> None:
    """The response is a whole problem document."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert read_slug(response.content) == slug
    problem = response.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["remedy"]
