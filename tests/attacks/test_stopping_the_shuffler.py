"""A server that never answers, and a sender that never ends, must not keep the shuffler from being stopped."""

import asyncio
import signal
from urllib.parse import urlsplit

import httpx
import pytest

from privateer_core.wire.envelope import Header
from tests.support.senders import Signing
from tests.unit.shuffler.fake_server import FakeServer, body_of, listening
from tests.unit.shuffler.helpers import sealed_reports, until
from tests.unit.shuffler.test_process import Process, running


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


async def never_ending(process: Process) -> asyncio.StreamWriter:
    """A connection whose request announces more than it sends."""
    where = urlsplit(process.url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"POST /experiments/spring/reports HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\nhalf")
    await writer.drain()
    return writer


async def test_it_stops_while_everything_waits(server: FakeServer, tmp_path: object) -> None:
    """A delivery without an answer, a long poll, a question to a mute server, and half an upload are under way."""
    header = server.publish(batch=20)
    server.mute = True
    with listening(server) as address, running(address, tmp_path) as process:
        await process.ready()
        async with httpx.AsyncClient(base_url=process.url, timeout=60, auth=Signing()) as client:
            path = "/experiments/spring/reports"
            assert (await client.post(path, content=body_of(header, sealed_reports(20)))).status_code == 202
            await until(lambda: bool(server.attempts))
            server.delay = 60
            asked = server.questions
            newer = Header(header.experiment, 9, header.key_id, header.digest)
            question = asyncio.create_task(client.post(path, content=body_of(newer, sealed_reports(1))))
            await until(lambda: server.questions > asked)
            writer = await never_ending(process)
            code = await asyncio.to_thread(process.end, signal.SIGTERM)
            assert code == -signal.SIGTERM
            writer.close()
            await asyncio.wait([question])
        server.mute, server.delay = False, 0.0
    assert list(tmp_path.glob("*.db"))  # type: ignore[attr-defined]
