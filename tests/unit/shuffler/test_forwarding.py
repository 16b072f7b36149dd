import asyncio
import logging

import httpx
import pytest

from privateer.errors import DuplicateReport, RoundClosed, RoundUnknown, Unauthorized
from privateer.wire.problem import problem_body
from privateer_shuffler.app import create_app
from tests.support.asgi import serving
from tests.unit.shuffler.helpers import Shuffler, sealed_reports, until


async def deliver(shuffler, header, reports):
    await shuffler.post(header, reports)
    await until(lambda: (header.experiment, header.version) in shuffler.server.taken)


async def test_a_busy_server_is_asked_again_with_the_same_bytes(shuffler, caplog):
    server, reports = shuffler.server, sealed_reports(5)
    server.busy = 2
    with caplog.at_level(logging.WARNING):
        await deliver(shuffler, server.publish(), reports)
    assert len(server.attempts) == 3
    assert len(set(server.attempts)) == 1
    assert sorted(server.received()) == sorted(reports)
    assert await shuffler.metric("forwarding_failures_total") == 2
    assert caplog.text.count("waits: the learning server answered 503 unavailable") == 2


async def test_a_batch_waits_over_a_restart(settings, server):
    transport = httpx.ASGITransport(server.app)
    server.busy = 1
    header, reports = server.publish(), sealed_reports(5)
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(header, reports)
        await until(lambda: len(server.attempts) == 1)
    async with serving(create_app(settings, transport)):
        await until(lambda: bool(server.taken))
        await until(lambda: not list(settings.data.glob("*.db*")))
    assert len(set(server.attempts)) == 1
    assert sorted(server.received()) == sorted(reports)


async def test_a_late_report_finds_the_full_round_closed(shuffler):
    server, reports = shuffler.server, sealed_reports(6)
    server.busy = 1000
    header = server.publish()
    await shuffler.post(header, reports[:5])
    await until(lambda: bool(server.attempts))
    assert (await shuffler.post(header, reports[5:])).status_code == 409
    assert (await shuffler.facts())["open"] is False
    assert (await shuffler.facts())["held"] == 5


async def test_the_next_round_opens_while_the_last_is_delivered(shuffler):
    server, reports = shuffler.server, sealed_reports(7)
    server.mute = True
    header = server.publish(version=1)
    await shuffler.post(header, reports[:5])
    await until(lambda: bool(server.taken))
    newer = server.publish(version=2)
    assert (await shuffler.post(newer, reports[5:])).status_code == 202
    assert await shuffler.metric("reports_held") == 7  # the answer is still missing
    server.mute = False
    async with asyncio.timeout(10):
        while await shuffler.metric("reports_held") != 2:
            await asyncio.sleep(0.01)
    assert await shuffler.metric("reports_dropped_total") == 0
    assert len(server.attempts) == 1


def answering(server, refusal):
    """A transport to ``server`` that answers every batch with ``refusal``."""
    inner = httpx.ASGITransport(server.app)

    class Transport(httpx.AsyncBaseTransport):
        attempts = 0

        async def handle_async_request(self, request):
            if request.url.path != "/batches":
                return await inner.handle_async_request(request)
            self.attempts += 1
            return httpx.Response(refusal.status, content=problem_body(refusal))

    return Transport()


@pytest.mark.parametrize("refusal", [RoundClosed("closed"), DuplicateReport("taken before")])
async def test_a_batch_that_the_server_has_is_done(settings, server, refusal):
    async with serving(create_app(settings, answering(server, refusal))) as client:
        shuffler = Shuffler(client, server)
        await shuffler.post(server.publish(), sealed_reports(5))
        await until(lambda: not list(settings.data.glob("*.db*")))
        assert await shuffler.metric("forwarding_failures_total") == 0


@pytest.mark.parametrize("refusal", [Unauthorized("unknown shuffler"), RoundUnknown("restored from a backup")])
async def test_a_batch_that_the_server_does_not_take_is_kept(settings, server, refusal):
    transport = answering(server, refusal)
    async with serving(create_app(settings, transport)) as client:
        shuffler = Shuffler(client, server)
        await shuffler.post(server.publish(), sealed_reports(5))
        await until(lambda: transport.attempts >= 3)
        assert (await shuffler.facts())["held"] == 5
        assert await shuffler.metric("batches_forwarded_total") == 0


async def test_pauses_grow_to_a_limit(settings, server, monkeypatch):
    pauses = []
    transport = answering(server, Unauthorized("unknown shuffler"))
    sleep = asyncio.sleep

    async def note(seconds):
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("privateer_shuffler.forwarding.asyncio", FakeAsyncio(note))
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(server.publish(), sealed_reports(5))
        await until(lambda: transport.attempts >= 12)
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == pauses[11] == 30


class FakeAsyncio:
    """The module ``asyncio`` with another ``sleep``."""

    to_thread = staticmethod(asyncio.to_thread)

    def __init__(self, sleep):
        self.sleep = sleep
