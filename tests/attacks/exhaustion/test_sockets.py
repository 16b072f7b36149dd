"""Attackers hold sockets or do not read: honest people hardly notice."""

import asyncio
import http.client
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from privateer_core.serving.http.answer import HeadMiddleware
from privateer_core.wire.batch import SIGNATURE_HEADER
from privateer_server.api.experiment_routes import MAX_POLLS
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.attacks.endpoints import MAX_SLOWDOWN, TIMEOUT_SECONDS, Endpoint, Repeater, endpoint, junk, measure_slowdown
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api
from tests.unit.serving.test_http_protocol import HEAD, listening, send_raw

# Attackers hold sockets: idle, half open, in mid-header, in mid-body. Honest people hardly notice.


MIB = 1 << 20
Endpoints = Callable[[str], Endpoint]
BOTH = pytest.mark.parametrize("name", ["server", "shuffler"])
ONE = pytest.mark.parametrize("name", ["server", pytest.param("shuffler", marks=pytest.mark.nightly)])


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """The server and the shuffler, started once: every attack ends before the next one begins."""
    with ExitStack() as stack:

        @cache
        def start(name: str) -> Endpoint:
            return stack.enter_context(endpoint(tmp_path_factory.mktemp(name), name))

        yield start


@pytest.fixture
def server(endpoints: Endpoints) -> Endpoint:
    return endpoints("server")


@ONE
@pytest.mark.parametrize("sockets", [2500, pytest.param(9000, marks=pytest.mark.nightly)])
def test_half_open_connections_hardly_slow_others(endpoints: Endpoints, name: str, sockets: int) -> None:
    """Connections on which nothing is said: more than a process may have by default, or than a service keeps."""
    at = endpoints(name)
    connections: list[socket.socket] = []

    def attack() -> Callable[[], object]:
        connections.extend(at.connect("127.0.0.2") for _ in range(sockets))
        return lambda: [connection.close() for connection in connections]

    assert measure_slowdown(at, attack) < MAX_SLOWDOWN


def send_endless_headers(at: Endpoint, piece: bytes) -> int:
    """Bytes of a request's headers, a MiB at a time, that a service takes before it hangs up; 200 MiB at most."""
    with at.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: here\r\nx: ")
        n_bytes = 0
        with suppress(ConnectionError):
            while n_bytes < 200 * MIB:
                connection.sendall(piece * (MIB // len(piece)))
                n_bytes += MIB
    return n_bytes


@pytest.mark.battery
@BOTH
@pytest.mark.parametrize("piece", [b"a" * 32, b"\r\nx: " + b"a" * 27], ids=["one line", "many lines"])
def test_an_endless_header_is_cut_off(endpoints: Endpoints, name: str, piece: bytes) -> None:
    at = endpoints(name)
    at.forget_peak()
    before = at.memory()
    assert send_endless_headers(at, piece) < 16 * MIB  # what socket buffers take
    assert at.memory() - before < 32 * MIB
    at.median(1)


def open_unfinished_uploads(at: Endpoint) -> Iterator[socket.socket]:
    """Uploads of 4 MiB that stop after the first."""
    head = f"POST {at.path} HTTP/1.1\r\nhost: here\r\ncontent-length: {4 * MIB}\r\n\r\n".encode()
    for _ in range(300):
        connection = at.connect("127.0.0.2")
        connection.setblocking(True)
        connection.settimeout(TIMEOUT_SECONDS)
        with suppress(ConnectionError):
            connection.sendall(head + bytes(MIB))
        yield connection


@ONE
def test_unfinished_uploads_hardly_slow_others(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies take no more memory than the budget, and the attacker's own make room for others."""
    monkeypatch.setenv("PRIVATEER_BODY_BUDGET", str(32 * MIB))
    monkeypatch.setenv("PRIVATEER_BATCH_BYTES_MAX", str(16 * MIB))
    with endpoint(tmp_path, name) as at:
        connections: list[socket.socket] = []

        def attack() -> Callable[[], object]:
            connections.extend(open_unfinished_uploads(at))
            return lambda: [connection.close() for connection in connections]

        before = at.memory()
        assert measure_slowdown(at, attack) < MAX_SLOWDOWN
        assert at.memory() - before < (32 + 64) * MIB


def test_waiting_polls_of_a_stranger_are_limited(server: Endpoint) -> None:
    """Without a limit, long polls, which last a minute, would keep others out."""
    request = b"GET /experiments/test/policy?wait=30 HTTP/1.1\r\nhost: here\r\nif-none-match: *\r\n\r\n"
    at = server
    with ExitStack() as stack:
        polls = [stack.enter_context(at.connect("127.0.0.2")) for _ in range(2 * MAX_POLLS)]
        for poll in polls:
            poll.sendall(request)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(answered_polls := select.select(polls, [], [], TIMEOUT_SECONDS)[0]) < MAX_POLLS:
            assert time.monotonic() < deadline
            at.median(1)
        at.median(10)  # the server has come to all of them, in the turns of their sender
        assert select.select(polls, [], [], 0)[0] == answered_polls
        assert len(answered_polls) == MAX_POLLS
        assert all(poll.recv(4096).startswith(b"HTTP/1.1 304 ") for poll in answered_polls)
        # All seats are one stranger's: somebody else gets one, and the stranger who waited longest has one less.
        with at.connect("127.0.0.3") as newcomer:
            newcomer.sendall(request)
            waiting_polls = [poll for poll in polls if poll not in answered_polls]
            (dropped_poll,) = select.select(waiting_polls, [], [], TIMEOUT_SECONDS)[0]
            assert dropped_poll is waiting_polls[0]
            assert dropped_poll.recv(4096).startswith(b"HTTP/1.1 304 ")
            assert not select.select([newcomer, *waiting_polls[1:]], [], [], 0.5)[0]


def test_unsigned_batches_are_refused_before_their_bodies(server: Endpoint) -> None:
    """Unsigned batches are refused before their bodies, so that waiting senders occupy no memory."""
    at = server
    admin = urlsplit(at.admin)
    head = f"POST /batches HTTP/1.1\r\nhost: [::1]\r\n{SIGNATURE_HEADER}: {'0' * 128}\r\ncontent-length: {MIB}\r\n\r\n"
    connections = [socket.create_connection((admin.hostname, admin.port), TIMEOUT_SECONDS) for _ in range(8)]
    try:
        for connection in connections:
            connection.sendall(head.encode())
        for connection in connections:
            assert connection.recv(4096).startswith(b"HTTP/1.1 403 ")
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("reports", [pytest.param(1000, marks=pytest.mark.nightly), 1])
def test_junk_reports_hardly_slow_others(server: Endpoint, reports: int) -> None:
    """1.3 MB of sealed junk a second in large uploads, or report by report as fast as a thread does it."""
    at = server
    body, address = junk(at, reports), urlsplit(at.url)

    def send() -> None:
        source = ("127.0.0.2", 0)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, TIMEOUT_SECONDS, source)
        with suppress(OSError):
            connection.request("POST", at.path, body)
            connection.getresponse().read()
        connection.close()

    def attack() -> Callable[[], object]:
        senders = [Repeater(send, 1.3e6 / len(body) / 8 if reports > 1 else 25) for _ in range(8)]
        return lambda: [sender.end() for sender in senders]

    assert measure_slowdown(at, attack) < MAX_SLOWDOWN


# Somebody asks for large pages, again and again, and does not read the answers: nobody else waits for it.
#
# The figure, which needs a quiet machine: ``pytest -s -m nightly tests/attacks/test_slow_readers.py``.


PAGES = [
    *("/openapi.json", "/experiments", "/keys", "/log/head", "/experiments/test", "/experiments/test/policy"),
    *(f"/experiments/test/{page}" for page in ("policy/1", "state", "history", "privacy", "risk")),
]
PER_SECOND = 240


async def slow_reader(port: int, source: str) -> socket.socket:
    """A connection that asks for 8 MiB and does not read them."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((source, 0))
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(connection, b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n")
    return connection


async def is_closed(connection: socket.socket) -> bool:
    try:
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, MIB), 0.2):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def test_unread_bytes_of_slow_readers_are_bounded() -> None:
    """At most 64 MiB wait, and 32 MiB for a single sender; the slowest connection closes first."""
    async with listening(unread_max=64 * MIB) as (port, table), asyncio.timeout(60):
        max_unread, connections = 0, list[socket.socket]()
        for number in range(24):
            connections.append(await slow_reader(port, "127.0.0.2"))
            await asyncio.sleep(0.02)
            max_unread = max(max_unread, table.unread)
            assert table.unread <= 32 * MIB, number
        assert max_unread > 16 * MIB, "the attack works"
        others = [await slow_reader(port, f"127.0.0.{3 + number}") for number in range(8)]
        await asyncio.sleep(0.1)
        assert table.unread <= 64 * MIB
        assert (await send_raw(port, HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\nhi")).endswith(b"2")
        assert len(table) < len(connections) + len(others)
        assert await is_closed(connections[0]), "who has waited longest goes first"
        for connection in (*connections, *others):
            connection.close()
        while len(table):
            await asyncio.sleep(0.01)
        assert table.unread == 0


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_is_made_once_however_many_ask(settings, monkeypatch, page):
    made_paths = list[str]()

    class Counted(HeadMiddleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            made_paths.append(scope.get("path", ""))
            await super().__call__(scope, receive, send)

    monkeypatch.setattr("privateer_server.app.HeadMiddleware", Counted)
    app = create_app(settings)
    async with serving(app) as client:
        await Api(client).create(SMALL)
        strangers = httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server")
        del made_paths[:]
        answers = [await strangers.get(f"{page}{query}") for query in ("", "?x=1", "?y", "") for _ in range(5)]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert made_paths == [page]
        revalidated = await strangers.get(page, headers={"if-none-match": answers[0].headers["etag"]})
        assert (revalidated.status_code, revalidated.content) == (304, b"")
        await strangers.aclose()


async def test_cached_pages_have_current_counts(settings: ServerSettings) -> None:
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
    """Opens 240 connections a second that request a page and read nothing; each stays open for three seconds."""

    def __init__(self, at: Endpoint) -> None:
        super().__init__(daemon=True)
        self._at, self._ended, self.opened = at, threading.Event(), 0
        self.start()

    def run(self) -> None:
        connections = deque[socket.socket]()
        began = time.perf_counter()
        while not self._ended.wait(max(0.0, began + self.opened / PER_SECOND - time.perf_counter())):
            connection = self._at.connect("127.0.0.2")
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n")
            connections.append(connection)
            self.opened += 1
            if len(connections) > 3 * PER_SECOND:
                connections.popleft().close()
        for connection in connections:
            connection.close()

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
        times = measure_slowdown(at, attack, people=400)
        print(f"{sum(reader.opened for reader in readers)} slow readers: people wait {times:.2f} times as long as else")
        assert times < MAX_SLOWDOWN
        assert at.memory() - before < 256 * MIB
