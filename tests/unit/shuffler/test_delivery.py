import asyncio
import logging
import sqlite3

import httpx
import pytest

from privateer_core.errors import RoundClosed, RoundUnknown, Unauthorized
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import split_bytes
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.round_file import RoundStore
from tests.support.asgi import serving
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until


async def deliver(shuffler, header, reports):
    await shuffler.post(header, reports)
    await until(lambda: (header.experiment, header.version) in shuffler.server.delivered)


async def test_a_batch_is_resent_to_a_busy_server_with_the_same_bytes(shuffler, caplog):
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
        await until(lambda: bool(server.delivered))
        await until(lambda: not list(settings.data.glob("*.db*")))
    assert len(set(server.attempts)) == 1
    assert sorted(server.received()) == sorted(reports)


async def test_a_late_report_is_unavailable_while_a_full_batch_waits(shuffler):
    """The server may ask for another batch: a device keeps what it sealed."""
    server, reports = shuffler.server, sealed_reports(6)
    server.busy = 1000
    header = server.publish()
    await shuffler.post(header, reports[:5])
    await until(lambda: bool(server.attempts))
    answer = await shuffler.post(header, reports[5:])
    assert_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert (await shuffler.facts())["open"] is False
    assert await shuffler.metric("reports_held") == 5
    server.busy = 0
    async with asyncio.timeout(20):
        while (answer := await shuffler.post(header, reports[5:])).status_code == 503:
            await asyncio.sleep(0.01)
    assert_problem(answer, 409, "round-closed")


async def test_another_batch_is_filled_if_the_server_asks_for_one(shuffler, settings):
    """A second batch of the version replaces the erased first batch, with different participants."""
    server, reports = shuffler.server, sealed_reports(10)
    server.insatiable = True
    header = server.publish()
    for start in (0, 5):
        async with asyncio.timeout(20):
            while (await shuffler.post(header, reports[start : start + 5])).status_code == 503:
                await asyncio.sleep(0.01)
        await until(lambda start=start: len(server.attempts) == 1 + start // 5)
    batches = [sorted(split_bytes(decode_batch(body).sealed, SIZE)) for body in server.attempts]
    assert batches == [sorted(reports[:5]), sorted(reports[5:])]
    await until(lambda: len(list(settings.data.glob("*.db"))) == 1)
    assert (await shuffler.facts())["version"] == 1
    assert await shuffler.metric("reports_forwarded_total") == 10


async def test_another_batch_is_filled_after_a_restart(settings, server):
    """Killed after the version was noted and before room for it was made: the version is not over."""
    transport = httpx.ASGITransport(server.app)
    server.insatiable = True
    header = server.publish()
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(header, sealed_reports(5))
        await until(lambda: bool(server.delivered))
    for path in settings.data.glob("*.db*"):
        path.unlink()
    async with serving(create_app(settings, transport)) as client:
        assert (await Shuffler(client, server).post(header, sealed_reports(1))).status_code == 202


async def test_a_full_disk_delays_another_batch_and_loses_nothing(shuffler, settings, monkeypatch):
    """Neither the erasure of a batch nor room for the next one is given up."""
    monkeypatch.setattr("privateer_shuffler.held_pools.RETRY_SECONDS", 0.01)
    server, reports = shuffler.server, sealed_reports(6)
    server.insatiable = True
    header = server.publish()
    attempts = []

    def full(_):
        attempts.append(1)
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as no_room:
        no_room.setattr(RoundStore, "start_next_batch", full)
        await shuffler.post(header, reports[:5])
        await until(lambda: len(attempts) > 1)
        assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")
        assert_problem(await shuffler.post(header, reports[5:]), 503, "unavailable")
        assert_problem(await shuffler.post(header, reports[:1]), 409, "duplicate-report")
    async with asyncio.timeout(20):
        while (await shuffler.post(header, reports[5:])).status_code != 202:
            await asyncio.sleep(0.01)
    assert sorted(server.received()) == sorted(reports[:5])
    assert (await shuffler.client.get("/readyz")).status_code == 200


async def test_the_next_round_opens_while_the_last_is_delivered(shuffler):
    server, reports = shuffler.server, sealed_reports(7)
    server.mute = True
    header = server.publish(version=1)
    await shuffler.post(header, reports[:5])
    await until(lambda: bool(server.delivered))
    newer = server.publish(version=2)
    assert (await shuffler.post(newer, reports[5:])).status_code == 202
    assert await shuffler.metric("reports_held") == 7  # the answer is still missing
    server.mute = False
    async with asyncio.timeout(20):
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


async def test_a_batch_of_a_closed_round_is_erased(settings, server):
    async with serving(create_app(settings, answering(server, RoundClosed("closed")))) as client:
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
        assert await shuffler.metric("reports_held") == 5
        assert await shuffler.metric("batches_forwarded_total") == 0


async def test_retry_delays_grow_to_a_limit(settings, server, monkeypatch):
    pauses = []
    transport = answering(server, Unauthorized("unknown shuffler"))
    sleep = asyncio.sleep

    async def note(seconds):
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("privateer_shuffler.delivery.asyncio", FakeAsyncio(note))
    async with serving(create_app(settings, transport)) as client:
        await Shuffler(client, server).post(server.publish(), sealed_reports(5))
        await until(lambda: len(pauses) >= 12)
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == pauses[11] == 30


class FakeAsyncio:
    """The module ``asyncio`` with another ``sleep``."""

    to_thread, timeout = staticmethod(asyncio.to_thread), staticmethod(asyncio.timeout)

    def __init__(self, sleep):
        self.sleep = sleep
