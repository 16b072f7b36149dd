"""Readiness and gauges of a shuffler by the state of its server: absent, another key, or other publications."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from privateer_shuffler.app import create_app
from tests.support.asgi import serving
from tests.support.notary import Notary
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until

OTHER = Notary(bytes([1]) * 32).identity


@pytest.fixture(autouse=True)
def probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe often: readiness probes by itself, and the gauge has the last probe."""
    monkeypatch.setattr("privateer_shuffler.server_health._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("privateer_shuffler.held_pools.RETRY_SECONDS", 0.02)


async def follows(shuffler: Shuffler, value: float) -> None:
    """Wait until the gauge has a value."""
    async with asyncio.timeout(20):
        while await shuffler.metric("following") != value:
            await asyncio.sleep(0.01)


async def test_a_server_with_another_key_makes_it_unready_until_the_old_one_is_back(shuffler, caplog):
    server, identity = shuffler.server, shuffler.server.identity
    await shuffler.post(server.publish(batch=9), sealed_reports(1))
    await follows(shuffler, 1)
    with caplog.at_level(logging.WARNING):
        server.identity = OTHER
        header = server.publish(version=2, batch=9)
        refused = await shuffler.client.get("/readyz")
        assert_problem(refused, 503, "unavailable")
        assert refused.json()["detail"] == "the server signs with another key than the known one"
        assert "PRIVATEER_SERVER_KEY" in refused.json()["remedy"]
        await follows(shuffler, 0)
        assert (await shuffler.facts())["version"] == 1
        server.identity = identity
        await follows(shuffler, 1)
    assert (await shuffler.client.get("/readyz")).status_code == 200
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    messages = [record.getMessage() for record in caplog.records if record.name == "privateer.shuffler"]
    assert [m.partition(":")[0] for m in messages] == ["no new round can be followed", "rounds can be followed again"]
    assert OTHER.public.hex() not in caplog.text


async def test_an_unsigned_response_in_between_counts_until_the_server_answers(shuffler: Shuffler) -> None:
    """The shuffler asks for the publication that it knows once more, and goes on with its round meanwhile."""
    server = shuffler.server
    header = server.publish(batch=9)
    await shuffler.post(header, sealed_reports(1))
    await follows(shuffler, 1)
    server.interrupted = True
    await follows(shuffler, 0)
    assert (await shuffler.client.get("/readyz")).status_code == 200
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    server.interrupted = False
    await follows(shuffler, 1)


async def test_a_restarted_shuffler_without_rounds_is_unready_without_its_server(settings, server):
    """No experiment has been requested yet, so that only the probe can show the failure."""
    transport = httpx.ASGITransport(server.app)
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(server.publish(batch=2), sealed_reports(2))
        await until(lambda: bool(server.delivered))
    server.identity = OTHER
    async with serving(create_app(settings, transport)) as client:
        assert_problem(await client.get("/readyz"), 503, "unavailable")
        await follows(Shuffler(client, server), 0)


async def test_the_open_round_continues_without_the_server(shuffler: Shuffler) -> None:
    server = shuffler.server
    header = server.publish(batch=3)
    await shuffler.post(header, sealed_reports(1))
    server.healthy = False
    assert (await shuffler.client.get("/readyz")).status_code == 200
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    await follows(shuffler, 0)
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    await until(lambda: bool(server.delivered))
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")  # it holds nothing, and learns of nothing
    server.healthy = True
    assert (await shuffler.client.get("/readyz")).status_code == 200
    await follows(shuffler, 1)


@pytest.mark.parametrize("published", [{"version": 1}, {"version": 2, "policy": b"another"}])
async def test_an_earlier_publication_is_on_the_gauge(shuffler: Shuffler, published: dict[str, Any]) -> None:
    server = shuffler.server
    header = server.publish(version=2)
    body = server.publications["spring"]
    await shuffler.post(header, sealed_reports(1))
    server.publish(**published)
    await follows(shuffler, 0)
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    server.publications["spring"] = body
    await follows(shuffler, 1)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=b"no key"),
        httpx.Response(200, json={"key": "xyz"}),
        httpx.Response(404),
        httpx.ReadTimeout("slow"),
    ],
)
async def test_a_response_without_a_key_counts_as_no_server(settings, answer):
    def respond(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)

    async with serving(create_app(settings, httpx.MockTransport(respond))) as client:
        assert_problem(await client.get("/readyz"), 503, "unavailable")
        await follows(Shuffler(client, FakeServer()), 0)
