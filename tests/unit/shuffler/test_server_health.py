"""What readiness and gauges of a shuffler say of its server: away, with another key, or with other publications."""

import asyncio
import logging
from typing import Any

import httpx
import pytest

from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.notary import Notary
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until

OTHER = Notary(bytes([1]) * 32).identity


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes in a row: readiness probes by itself, and the gauge says what the last one said."""
    monkeypatch.setattr("privateer_shuffler.server_health._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("privateer_shuffler.followed_rounds._RETRY_SECONDS", 0.02)


async def follows(shuffler: Shuffler, value: float) -> None:
    """Wait until the gauge has a value."""
    async with asyncio.timeout(20):
        while await shuffler.metric("following") != value:
            await asyncio.sleep(0.01)


async def test_a_server_with_another_key_makes_it_unready_until_the_old_one_is_back(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    server, own = shuffler.server, shuffler.server.identity
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
        server.identity = own
        await follows(shuffler, 1)
    assert (await shuffler.client.get("/readyz")).status_code == 200
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    said = [one.getMessage() for one in caplog.records if one.name == "privateer.shuffler"]
    assert [line.partition(":")[0] for line in said] == ["no new round can be followed", "rounds can be followed again"]
    assert OTHER.public.hex() not in caplog.text


async def test_a_page_in_between_that_nobody_has_signed_is_over_once_the_server_answers(shuffler: Shuffler) -> None:
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


async def test_it_is_unready_after_a_restart_that_follows_nothing(
    settings: ShufflerSettings, server: FakeServer
) -> None:
    """Nobody has asked for an experiment yet, so nothing else could tell."""
    transport = httpx.ASGITransport(server.app)
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(server.publish(batch=2), sealed_reports(2))
        await until(lambda: bool(server.taken))
    server.identity = OTHER
    async with serving(create_app(settings, transport)) as client:
        assert_problem(await client.get("/readyz"), 503, "unavailable")
        await follows(Shuffler(client, server), 0)


async def test_it_goes_on_with_its_round_while_the_server_is_away(shuffler: Shuffler) -> None:
    server = shuffler.server
    header = server.publish(batch=3)
    await shuffler.post(header, sealed_reports(1))
    server.healthy = False
    assert (await shuffler.client.get("/readyz")).status_code == 200
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    await follows(shuffler, 0)
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    await until(lambda: bool(server.taken))
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")  # it holds nothing, and learns of nothing
    server.healthy = True
    assert (await shuffler.client.get("/readyz")).status_code == 200
    await follows(shuffler, 1)


@pytest.mark.parametrize("again", [{"version": 1}, {"version": 2, "policy": b"another"}])
async def test_a_server_that_went_back_is_on_the_gauge(shuffler: Shuffler, again: dict[str, Any]) -> None:
    server = shuffler.server
    header = server.publish(version=2)
    body = server.publications["spring"]
    await shuffler.post(header, sealed_reports(1))
    server.publish(**again)
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
async def test_what_answers_without_a_key_is_no_server(
    settings: ShufflerSettings, answer: httpx.Response | Exception
) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content)

    async with serving(create_app(settings, httpx.MockTransport(respond))) as client:
        assert_problem(await client.get("/readyz"), 503, "unavailable")
        await follows(Shuffler(client, FakeServer()), 0)
