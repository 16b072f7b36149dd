"""Somebody asks for large pages, again and again, and does not read the answers: nobody else waits for it.

The figure, which needs a quiet machine: ``pytest -s -m nightly tests/attacks/test_slow_readers.py``.
"""

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.serving.http.answer import Heads
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.attacks.endpoints import SLOWER, Endpoint, endpoint, hardly_slower
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api
from tests.unit.serving.test_http_protocol import HEAD, listening, said

MIB = 1 << 20
PAGES = [
    *("/openapi.json", "/experiments", "/keys", "/experiments/test", "/experiments/test/policy"),
    *(f"/experiments/test/{page}" for page in ("policy/1", "state", "history", "privacy", "risk")),
]
PER_SECOND = 240


async def slow_reader(port: int, source: str) -> socket.socket:
    """A connection that asks for 8 MiB and does not read them."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.bind((source, 0))
    one.setblocking(False)
    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(one, b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n")
    return one


async def is_closed(one: socket.socket) -> bool:
    try:
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(one, MIB), 0.2):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def test_what_slow_readers_leave_waiting_is_bounded() -> None:
    """64 MiB may wait, a half of them for one sender; the slowest close first."""
    async with listening(unread_max=64 * MIB) as (port, table), asyncio.timeout(60):
        most, slow = 0, list[socket.socket]()
        for number in range(24):
            slow.append(await slow_reader(port, "127.0.0.2"))
            await asyncio.sleep(0.02)
            most = max(most, table.unread)
            assert table.unread <= 32 * MIB, number
        assert most > 16 * MIB, "the attack works"
        other = [await slow_reader(port, f"127.0.0.{3 + number}") for number in range(8)]
        await asyncio.sleep(0.1)
        assert table.unread <= 64 * MIB
        assert (await said(port, HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\nhi")).endswith(b"2")
        assert len(table) < len(slow) + len(other)
        assert await is_closed(slow[0]), "who has waited longest goes first"
        for one in (*slow, *other):
            one.close()
        while len(table):
            await asyncio.sleep(0.01)
        assert table.unread == 0


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_is_made_once_however_many_ask(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    made = list[str]()

    class Counted(Heads):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            made.append(scope.get("path", ""))
            await super().__call__(scope, receive, send)

    monkeypatch.setattr("privateer_server.app.Heads", Counted)
    app = create_app(settings)
    async with serving(app) as client:
        await Api(client).create(SMALL)
        strangers = httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server")
        del made[:]
        answers = [await strangers.get(f"{page}{query}") for query in ("", "?x=1", "?y", "") for _ in range(5)]
        assert {one.status_code for one in answers} == {200}
        assert len({one.content for one in answers}) == 1
        assert made == [page]
        again = await strangers.get(page, headers={"if-none-match": answers[0].headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        await strangers.aclose()


async def test_counts_on_pages_are_those_of_now(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        api = Api(client)
        await api.create(SMALL)
        strangers = httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server")
        paths = ["/experiments", *(f"/experiments/test{page}" for page in ("", "/state", "/history", "/privacy"))]
        before = [(await strangers.get(path)).text for path in paths]
        publication = await api.publication()
        report = body_of(publication, sealed_reports(publication, 1))
        assert (await client.post("/reports", content=report)).status_code == 202
        after = [(await strangers.get(path)).text for path in paths]
        assert all(first != second for first, second in zip(before, after, strict=True))
        await strangers.aclose()


class SlowReaders(threading.Thread):
    """240 connections a second that ask for a page and read nothing; each is kept for some seconds."""

    def __init__(self, at: Endpoint) -> None:
        super().__init__(daemon=True)
        self._at, self._ended, self.opened = at, threading.Event(), 0
        self.start()

    def run(self) -> None:
        held = deque[socket.socket]()
        began = time.perf_counter()
        while not self._ended.wait(max(0.0, began + self.opened / PER_SECOND - time.perf_counter())):
            one = self._at.connect("127.0.0.2")
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n")
            held.append(one)
            self.opened += 1
            if len(held) > 3 * PER_SECOND:
                held.popleft().close()
        for one in held:
            one.close()

    def end(self) -> None:
        self._ended.set()
        self.join(10)


@pytest.mark.nightly
def test_honest_people_hardly_wait_for_slow_readers(tmp_path: Path) -> None:
    with endpoint(tmp_path, "server") as at:
        readers = list[SlowReaders]()

        def attack() -> Callable[[], object]:
            readers.append(SlowReaders(at))
            time.sleep(1)
            return readers[-1].end

        before = at.memory()
        times = hardly_slower(at, attack, people=400)
        print(f"{sum(one.opened for one in readers)} slow readers: people wait {times:.2f} times as long as else")
        assert times < SLOWER
        assert at.memory() - before < 256 * MIB
