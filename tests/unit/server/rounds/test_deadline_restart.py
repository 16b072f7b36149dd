"""A deadline that passes while the server is away, and a shuffler that holds the batch meanwhile."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.phased import tables
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.servers import ADMIN, Api

SHORT = {
    "experiment.horizon": 600,
    "algorithm.alpha": 0.2,
    "algorithm.clients": 20,
    "asking.seconds": 60,
    "asking.when_short": "reduce",
    "privacy.min_batch": 12,
}
Serving = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hands:
    monkeypatch.setattr("privateer_server.rounds.deadlines._LOOK_SECONDS", 0.01)
    return Hands()


@pytest.fixture
def serve(settings: ServerSettings, clock: Hands) -> Serving:
    @asynccontextmanager
    async def served() -> AsyncIterator[Api]:
        async with serving(create_app(settings, clock)) as client:
            yield Api(client)

    return served


async def opened(api: Api) -> bytes:
    await api.client.post("/experiments", json=tables(SHORT, "shuffle"), headers=ADMIN)
    return await api.publication()


async def later(api: Api) -> dict[str, Any]:
    """The experiment's facts after some looks at its deadline."""
    await asyncio.sleep(0.2)
    return await api.facts()


async def test_a_batch_that_could_not_be_delivered_still_counts(
    serve: Serving, clock: Hands, shuffler_key: Ed25519PrivateKey
) -> None:
    async with serve() as api:
        publication = await opened(api)
    least = decode_publication(publication).round.least
    body = body_of(publication, permuted(publication, sealed_reports(publication, least), random.Random(0)))
    clock.time += 1000
    async with serve() as api:
        assert (await later(api))["version"] == 1
        headers = {SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)}
        answer = await api.client.post("/batches", content=body, headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (202, least)
        assert (await later(api))["status"] == "open"


@pytest.mark.usefixtures("shuffler_key")
async def test_but_nobody_waits_for_ever(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await opened(api)
    clock.time += 1000
    async with serve() as api:
        assert (await later(api))["status"] == "open"
        clock.time += 60
        async with asyncio.timeout(20):
            while (await api.facts())["status"] != "failed":
                await asyncio.sleep(0.01)
