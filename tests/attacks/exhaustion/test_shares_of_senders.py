"""A sender that floods delays other senders by a single request."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest

from privateer_core.serving.connections import Connections, ConnectionStage
from privateer_core.serving.fair_queue import RequestQueue
from privateer_core.serving.http import page_cache
from privateer_core.serving.http.listeners import OriginMiddleware, PublicPages
from privateer_core.serving.http_protocol import GuardedProtocol
from privateer_core.serving.process import _make_config
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.token import Challenge, PendingToken
from privateer_core.wire.token_keys import Directory
from privateer_issuer import app as issuer_service
from privateer_issuer.store import IssuerStore
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_shuffler import app as shuffler_service
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.servers import SHUFFLED, TOKEN, Api
from tests.support.tokens import SECRET, issuer_settings
from tests.unit.serving.test_connections import FakeConnection
from tests.unit.serving.test_http_protocol import State
from tests.unit.shuffler.fake_server import FakeServer

CONNECTIONS, DEPTH = 16, 2
MAX_BEFORE: Final = 2
"""Requests of the flood that may be answered before an honest one: of the pass under way, and of the next."""
GREEDY, HONEST = "192.0.2.9", "192.0.2.3"
ORIGIN: Final = "https://shop.example"
PAGE: Final = {"origin": ORIGIN, "access-control-request-method": "POST"}
"""Headers of a page in a browser, at another origin than the service."""
KEPT: Final = [
    *("/healthz", "/keys", "/limits", "/openapi.json", "/experiments", "/", "/dashboard/app.mjs", "/nothing"),
    *("/log/key", "/log/head", "/log/entries", "/log/proof?experiment=test&version=1"),
    *(f"/experiments/test{page}" for page in ("", "/policy", "/answer", "/state", "/history", "/privacy", "/risk")),
]
"""Pages whose bytes are kept."""
MADE: Final = [
    *("/readyz", "/log/inclusion?experiment=test&version=1", "/log/consistency?first=1&second=1", "/log/entries?end=1"),
    *("/experiments/test/token-keys", "/experiments/none/token-keys", "/experiments/none", "/log/none"),
    *("/experiments/test/policy?wait=5", "/experiments/test/policy/1"),
    *("POST /reports", "OPTIONS /reports", "OPTIONS /experiments/test/policy"),
]
OF_SHUFFLER: Final = [
    *("/healthz", "/readyz", "/keys", "/limits", "/openapi.json", "/nothing", "OPTIONS /experiments/spring/reports"),
    *("/experiments/spring", "/experiments/none", "/experiments/spring/token-keys", "/experiments/none/token-keys"),
    *("POST /experiments/spring/reports", "POST /experiments/none/reports"),
]
OF_ISSUER: Final = [
    *("/healthz", "/readyz", "/token-keys", "/openapi.json", "/nothing", "OPTIONS /experiments/test/tokens"),
    *("POST /experiments/test/tokens", "POST /experiments/none/tokens"),
]


def write_request(route: str, headers: dict[str, str] | None = None, body: bytes = b"ab") -> bytes:
    """Return a request by its method and path, or by the path of a page."""
    method, _, target = route.rpartition(" ")
    body = body if method == "POST" else b""
    fields = (
        {"host": "here", "accept": "text/html"} | (headers or {}) | ({"content-length": str(len(body))} if body else {})
    )
    lines = (f"{method or 'GET'} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()))
    return "\r\n".join((*lines, "", "")).encode() + body


POLICY: Final = write_request("/experiments/test/policy", {"accept": "application/msgpack"})


class Wire:
    """A transport that notes who is answered."""

    def __init__(self, sender: str, answered: list[str]) -> None:
        self._sender, self._answered, self._is_closing = sender, answered, False

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            self._answered.append(self._sender)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._sender, 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._is_closing = True

    close = abort

    def __getattr__(self, name: str) -> Callable[..., None]:
        assert name in ("pause_reading", "resume_reading", "set_write_buffer_limits", "write_eof")
        return lambda *_, **__: None


class CountingState(State):
    """Counts the tasks of requests."""

    n_tasks = 0

    def __init__(self) -> None:
        super().__init__()
        state = self

        class Tasks(set[Any]):
            def add(self, task: Any) -> None:
                state.n_tasks += 1
                super().add(task)

        self.tasks = Tasks()


class Door:
    """The public listener of a service, without sockets.

    honest: the request of an honest person.
    """

    def __init__(self, app: Any, honest: bytes = POLICY) -> None:
        self.answered: list[str] = []
        self._honest, self._table, self._state = honest, Connections(1000), CountingState()
        self._config = _make_config(app, "off", self._table)
        self._config.load()

    def connect(self, sender: str) -> Any:
        connection: Any = GuardedProtocol(self._table, config=self._config, server_state=self._state, app_state={})
        connection.connection_made(Wire(sender, self.answered))
        return connection

    async def wait_for(self, sender: str, answers: int) -> None:
        async with asyncio.timeout(30):
            while self.answered.count(sender) < answers:
                await asyncio.sleep(0)

    async def ask(self, request: bytes, sender: str = GREEDY) -> None:
        """Send a request, and wait for its answer; a page is kept from then on if it may be."""
        answers = self.answered.count(sender)
        self.connect(sender).data_received(request)
        await self.wait_for(sender, answers + 1)

    async def count_tasks(self, request: bytes) -> int:
        """The tasks that a request begins."""
        before = self._state.n_tasks
        await self.ask(request)
        return self._state.n_tasks - before

    def flood(self, request: bytes) -> None:
        """Send a request many times at once."""
        for _ in range(CONNECTIONS):
            self.connect(GREEDY).data_received(DEPTH * request)

    async def count_before(self, request: bytes) -> int:
        """The most requests of a flood that are answered between an honest request and its answer."""
        self.answered.clear()
        await self.ask(request)
        await self.ask(self._honest, HONEST)
        honest = self.connect(HONEST)
        self.flood(request)
        max_before = 0
        for times in range(2, 7):
            before = len(self.answered)
            honest.data_received(self._honest)
            await self.wait_for(HONEST, times)
            max_before = max(max_before, self.answered[before:].index(HONEST))
        await self.wait_for(GREEDY, 1 + CONNECTIONS * DEPTH)  # nothing is left for the next route
        return max_before


@asynccontextmanager
async def open_server(folder: Path, *origins: str) -> AsyncIterator[Door]:
    server = create_app(ServerSettings(data=folder / "data", admin_token=TOKEN, cors_origins=origins))
    async with serving(server) as client:
        assert (await Api(client).create(SHUFFLED)).status_code == 201
        yield Door(server.public)


@asynccontextmanager
async def open_shuffler(folder: Path, *origins: str) -> AsyncIterator[Door]:
    server = FakeServer()
    settings = ShufflerSettings(server_url="http://server", data=folder / "data", public_key_file=None, min_batch=2)
    app = shuffler_service.create_app(settings, httpx.ASGITransport(server.app))
    async with serving(app) as client:
        server.publish()
        assert (await client.get("/experiments/spring")).status_code == 200
        pages = PublicPages(app, shuffler_service._is_public)
        yield Door(OriginMiddleware(pages, origins), write_request("/experiments/spring"))


@asynccontextmanager
async def open_issuer(folder: Path, *origins: str) -> AsyncIterator[Door]:
    app = issuer_service.create_app(issuer_settings(folder, attestation_verifier="hmac"))
    async with serving(app):
        pages = PublicPages(app, issuer_service._is_public)
        yield Door(OriginMiddleware(pages, origins), write_request("/token-keys"))


SERVICES: Final = {
    "server": (open_server, [*KEPT, *MADE]),
    "shuffler": (open_shuffler, OF_SHUFFLER),
    "issuer": (open_issuer, OF_ISSUER),
}


@pytest.mark.parametrize("origins", [(), (ORIGIN,)], ids=["no pages", "pages"])
@pytest.mark.parametrize("service", SERVICES)
async def test_nobody_waits_for_more_than_one_request_of_another(
    service: str, origins: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where pages of another origin may ask: their preflights, and answers that need headers for them."""
    # Readiness is looked at once a second, and all who ask meanwhile are answered then: here it stays kept.
    monkeypatch.setattr(page_cache, "time", SimpleNamespace(monotonic=lambda: 0.0))
    open_door, routes = SERVICES[service]
    async with open_door(tmp_path, *origins) as door:
        for route in routes:
            assert await door.count_before(write_request(route, PAGE if origins else {})) <= MAX_BEFORE, route


@pytest.mark.parametrize("service", SERVICES)
async def test_without_turns_everybody_waits_for_the_flood(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: all that has come is answered in one pass, as it came."""
    monkeypatch.setattr(
        RequestQueue, "put", lambda _, __, answer: asyncio.get_running_loop().call_soon(answer) is not None
    )
    open_door, _ = SERVICES[service]
    async with open_door(tmp_path) as door:
        assert await door.count_before(write_request("/healthz")) >= CONNECTIONS


async def count_signed_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The signatures for a flood that come before an honest person's, of tokens that are counted together."""
    folder.mkdir()
    may_write, count_requests = threading.Event(), IssuerStore.count_requests

    def wait_and_count(*arguments: Any) -> list[bool]:
        may_write.wait()
        return count_requests(*arguments)

    monkeypatch.setattr(IssuerStore, "count_requests", wait_and_count)
    app = issuer_service.create_app(issuer_settings(folder, attestation_verifier="hmac"))
    async with serving(app) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]

        def write_token_request(device: str) -> bytes:
            pending = PendingToken.draw(Challenge("issuer", "shuffler", "test"), key)
            attestation = attest(SECRET, "test", device, int(time.time()) + 600)
            return write_request("POST /experiments/test/tokens", {HEADER: attestation}, pending.request)

        door = Door(OriginMiddleware(PublicPages(app, issuer_service._is_public), ()))
        flood, honest = write_token_request("greedy"), write_token_request("honest")
        for send in (lambda: door.flood(flood), lambda: door.connect(HONEST).data_received(honest)):
            send()
            for _ in range(20 * CONNECTIONS):  # passes of the event loop, until all wait for the disk
                await asyncio.sleep(0)
        assert not door.answered
        may_write.set()
        await door.wait_for(HONEST, 1)
        before = door.answered.index(HONEST)
        await door.wait_for(GREEDY, CONNECTIONS * DEPTH)
        return before


async def test_tokens_that_are_counted_together_are_signed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass of the event loop signs one token of each sender."""
    assert await count_signed_before(tmp_path / "turns", monkeypatch) <= 1 + MAX_BEFORE  # one was counted before
    monkeypatch.undo()
    monkeypatch.setattr(RequestQueue, "wait_for_turn", _wait_for_nothing)
    assert await count_signed_before(tmp_path / "none", monkeypatch) >= CONNECTIONS, "planted: no turns"


async def _wait_for_nothing(*_: Any) -> None:
    """Let everybody sign at once."""


async def test_stored_pages_are_answered_without_a_task(tmp_path: Path) -> None:
    async with open_server(tmp_path) as door:
        for path in KEPT:
            request = write_request(path)
            await door.ask(request)
            assert await door.count_tasks(request) == 0, path
        assert await door.count_tasks(write_request("/log/none")) > 0, "planted: a page that is made"


async def test_a_head_is_signed_anew_after_a_publication(tmp_path: Path) -> None:
    server = create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN))
    async with serving(server) as client:
        heads = []
        for name in ("one", "two", "three"):
            assert (await Api(client).create({"experiment.name": name})).status_code == 201
            heads += [(await client.get("/log/head")).text for _ in range(2)]
        assert [head.split("\n")[1] for head in heads] == ["1", "1", "2", "2", "3", "3"]


async def test_a_sender_that_fills_the_table_closes_its_connections_alone() -> None:
    """Uploads that never end leave nobody else's connection for long, if the earliest stage alone counts."""
    table, others = Connections(128), []
    for _ in range(128):
        greedy = FakeConnection(table, GREEDY)
        table.enter(greedy)
        table.move(greedy, ConnectionStage.READING)
    for sender in range(20):
        others.append(FakeConnection(table, f"198.51.100.{sender}"))
        table.enter(others[-1])
        for _ in range(3):
            table.enter(FakeConnection(table, GREEDY))
    assert not any(other.dropped for other in others)
    assert len(table) == 128
