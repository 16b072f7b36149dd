"""The server asks for another batch, publishes the next version, and takes its time over the claim."""

import asyncio

import httpx

from privateer_core.wire.batch import SIGNATURE_HEADER
from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.unit.shuffler.conftest import server, settings  # noqa: F401
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until

_TURNS = 200


class SlowClaims(httpx.AsyncBaseTransport):
    """A way to the server on which claims wait while ``open`` is not set."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner, self.open, self.waiting = inner, asyncio.Event(), 0
        self.open.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if SIGNATURE_HEADER in request.headers and request.url.path != "/batches":
            self.waiting += 1
            await self.open.wait()
            self.waiting -= 1
        return await self.inner.handle_async_request(request)


async def test_a_late_refill_does_not_reopen_an_older_version(settings: ShufflerSettings, server: FakeServer) -> None:  # noqa: F811
    """Nor does it drop what was acknowledged for the newer one, or mark that one as over."""
    way = SlowClaims(httpx.ASGITransport(server.app))
    server.insatiable = server.mute = True
    reports = sealed_reports(10)
    async with serving(create_app(settings, way)) as client:
        shuffler = Shuffler(client, server)
        first = server.publish(version=1)
        await shuffler.post(first, reports[:5])
        await until(lambda: bool(server.attempts))
        way.open.clear()
        second = server.publish(version=2)
        await until(lambda: way.waiting == 1)  # version 2 is being opened
        server.mute = False
        async with asyncio.timeout(20):
            while await shuffler.metric("reports_forwarded_total") != 5:
                await asyncio.sleep(0.005)
        for _ in range(_TURNS):  # the answer for version 1 is acted on as far as it can be
            await shuffler.facts()
        way.open.set()
        assert (await shuffler.post(second, reports[5:8])).status_code == 202
        await until(lambda: len(list(settings.data.glob("*.db"))) == 1)
        assert (await shuffler.facts())["version"] == 2
        assert_problem(await shuffler.post(first, sealed_reports(1)), 409, "round-closed")
        assert (await shuffler.post(second, reports[8:])).status_code == 202
        await until(lambda: ("spring", 2) in server.taken)
        assert sorted(server.received(version=2)) == sorted(reports[5:])
        assert await shuffler.metric("reports_dropped_total") == 0


def is_followed() -> bool:
    return any(getattr(task.get_coro(), "__name__", "") == "_follow" for task in asyncio.all_tasks())


async def test_an_experiment_that_goes_on_after_its_end_is_followed_again(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
) -> None:
    """A server that was restored opens a later version: the next upload finds it, and nobody needs to find the next."""
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler = Shuffler(client, server)
        await shuffler.post(server.publish(version=1), sealed_reports(1))
        server.publish(version=2, batch=0)
        await shuffler.reaches(2)
        await until(lambda: not is_followed())
        header = server.publish(version=1_000_001)
        assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
        server.publish(version=1_000_002)
        await shuffler.reaches(1_000_002)
