"""Floods of uploads, streams and connections that end early."""

import asyncio
import http.client
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvloop

from privateer_core.serving.http.answer import make_answer
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY
from privateer_core.serving.http.page_cache import PageCache, Version
from privateer_core.wire.publication import Header
from privateer_core.wire.token import Challenge, PendingToken, authorization, origin_name
from privateer_core.wire.token_keys import Directory
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services
from tests.attacks.endpoints import MAX_SLOWDOWN, SHUFFLED
from tests.integration.test_pipeline import count_held, create
from tests.support.floods import Flood
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import MSGPACK
from tests.support.specs import make_spec
from tests.unit.serving.test_http_protocol import HEAD, listening
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.fake_server import body_of as body_of_stopping
from tests.unit.shuffler.fake_server import listening as listening_of_stopping
from tests.unit.shuffler.helpers import sealed_reports as sealed_reports_of_stopping
from tests.unit.shuffler.helpers import until
from tests.unit.shuffler.test_process import Process
from tests.unit.shuffler.test_process import start_process as start_stopping

# An attack by anonymous uploads on a shuffler of one core: people with tokens hardly wait, and nothing is opened.


PEOPLE = 100
"""Honest people whose median is taken."""
ROUNDS = 4
CONNECTIONS = 128
LEAST = 2
"""Uploads of an attack for each that one person could send in the same time, however busy the machine is."""
PATH = "/experiments/test/reports"


@dataclass
class Gated:
    """Services that take reports with tokens alone, the shuffler on one core, and people with tokens."""

    at: Services
    tokens: list[bytes]
    bodies: list[bytes]

    def person(self) -> float:
        """Seconds that one honest person waits."""
        address, token, body = urlsplit(self.at.shuffler), self.tokens.pop(), self.bodies.pop()
        started = time.perf_counter()
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        connection.request("POST", PATH, body, {"Authorization": authorization(token)})
        assert connection.getresponse().status == 202
        connection.close()
        return time.perf_counter() - started

    def median(self) -> float:
        return statistics.median(self.person() for _ in range(PEOPLE))

    def cpu(self) -> float:
        """Seconds of processor time of the shuffler."""
        fields = Path(f"/proc/{self.at.processes.pid('shuffler')}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def gated(folder: Path) -> Iterator[Gated]:
    with run_services(folder, free_port(), free_port(), quiet=True, issuing=IssuerProcess("test", free_port())) as at:
        create(at, make_spec(SHUFFLED))
        publication = httpx.get(f"{at.server}/experiments/test/policy", headers=MSGPACK).content
        page = httpx.get(f"{at.shuffler}/experiments/test/token-keys").content
        key, people = Directory.decode(page).keys("test")[0], 3 * ROUNDS * PEOPLE
        challenge = Challenge(origin_name(at.issuer), origin_name(at.shuffler), "test")
        with httpx.Client() as http_client:

            def token() -> bytes:
                pending = PendingToken.draw(challenge, key)
                answer = http_client.post(f"{at.issuer}/experiments/test/tokens", content=pending.request)
                return pending.finish(key, answer.content)

            tokens = [token() for _ in range(people)]
        bodies = [body_of(publication, [sealed]) for sealed in sealed_reports(publication, people)]
        os.sched_setaffinity(at.processes.pid("shuffler"), {min(os.sched_getaffinity(0))})
        yield Gated(at, tokens, bodies)


def anonymous(services: Gated) -> str:
    return ""


def forged(services: Gated) -> str:
    """The header of a token with a nonce that nobody signed."""
    token = services.tokens[0]
    return f"Authorization: {authorization(token[:2] + bytes(32) + token[34:])}\r\n"


@pytest.mark.nightly
@pytest.mark.parametrize("header", [anonymous, forged])
def test_people_with_tokens_hardly_wait(tmp_path: Path, header: Callable[[Gated], str]) -> None:
    with gated(tmp_path) as services:
        body = services.bodies[0]
        headers = f"Host: here\r\nContent-Length: {len(body)}\r\n{header(services)}\r\n"
        request = f"POST {PATH} HTTP/1.1\r\n{headers}".encode() + body
        services.median()  # the first people find everything cold
        figures = []
        for _ in range(ROUNDS - 1):
            quiet = services.median()
            flood = Flood(services.at.shuffler, request, CONNECTIONS)
            time.sleep(0.5)
            cpu, started = services.cpu(), time.perf_counter()
            attacked = services.median()
            share = (services.cpu() - cpu) / (time.perf_counter() - started)
            flood.end()
            figures.append((attacked / max(quiet, services.median()), quiet, attacked, flood.rate, share))
            times, quiet, attacked, rate, share = figures[-1]
            print(
                f"{header.__name__}: {rate:,.0f} uploads/s, {share:.0%} of the core; "
                f"people wait {1e3 * attacked:.2f} ms, else {1e3 * quiet:.2f} ms: {times:.2f} times as long"
            )
            if times < MAX_SLOWDOWN:
                break
        # A busy machine slows people down now and then; the service would do so every time.
        assert min(figures)[0] < MAX_SLOWDOWN
        assert max(rate * quiet for _, quiet, _, rate, _ in figures) > LEAST
        assert "privateer_shuffler_store_up 1.0" in httpx.get(f"{services.at.shuffler_admin}/metrics").text
        people = 3 * ROUNDS * PEOPLE - len(services.tokens)
    assert count_held(tmp_path / "shuffler") == people  # and nothing else, so that nothing else is ever opened


# Somebody sends one upload or several at once and hangs up before the answers: nothing of it reaches the log.


UPLOAD = HEAD + b"content-length: 2\r\n\r\nab"
UPLOADS = [1, 4]
SECONDS = 0.1


class Durable:
    """Answers uploads once they are durable: when it is told that they are."""

    def __init__(self) -> None:
        self.stored: list[asyncio.Future[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("an upload that is there as a whole is taken at once")

    def answer_at_once(self, _: Any, __: Any, reply: Any) -> bool:
        self.stored.append(asyncio.get_running_loop().create_future())
        self.stored[-1].add_done_callback(lambda _: reply(make_answer(202, b"{}")))
        return True


async def upload_and_hang_up(app: Durable) -> list[dict[str, Any]]:
    """What the loop would write into the log."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with listening(app) as (port, _):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in UPLOADS]
        for writer, n_uploads in zip(writers, UPLOADS, strict=True):
            writer.write(n_uploads * UPLOAD)
            await writer.drain()
        await until(lambda: len(app.stored) == len(UPLOADS))
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(SECONDS)
        for stored in app.stored:  # what waits behind the first is not parsed
            stored.set_result(None)
            await asyncio.sleep(SECONDS)
    return errors


def test_hanging_up_on_uploads_writes_nothing_into_the_log() -> None:
    app = Durable()
    assert uvloop.run(upload_and_hang_up(app)) == []  # the loop of the services
    assert len(app.stored) == len(UPLOADS)


# A server that never answers, and a sender that never ends, must not keep the shuffler from being stopped.


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


async def open_unfinished_upload(process: Process) -> asyncio.StreamWriter:
    """A connection whose request announces more than it sends."""
    address = urlsplit(process.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"POST /experiments/spring/reports HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\nhalf")
    await writer.drain()
    return writer


async def test_the_shuffler_stops_while_requests_wait(server: FakeServer, tmp_path: object) -> None:
    """A delivery without an answer, a long poll, a question to a mute server, and half an upload are under way."""
    header = server.publish(batch=20)
    server.mute = True
    with listening_of_stopping(server) as address, start_stopping(address, tmp_path) as process:
        await process.ready()
        async with httpx.AsyncClient(base_url=process.url, timeout=60, auth=Signing()) as client:
            path = "/experiments/spring/reports"
            assert (
                await client.post(path, content=body_of_stopping(header, sealed_reports_of_stopping(20)))
            ).status_code == 202
            await until(lambda: bool(server.attempts))
            server.delay = 60
            questions = server.questions
            newer = Header(header.experiment, 9, header.key_id, header.digest)
            question = asyncio.create_task(
                client.post(path, content=body_of_stopping(newer, sealed_reports_of_stopping(1)))
            )
            await until(lambda: server.questions > questions)
            writer = await open_unfinished_upload(process)
            code = await asyncio.to_thread(process.end, signal.SIGTERM)
            assert code == -signal.SIGTERM
            writer.close()
            await asyncio.wait([question])
        server.mute, server.delay = False, 0.0
    assert list(tmp_path.glob("*.db"))  # type: ignore[attr-defined]


# Somebody has many costly pages made, and asks for everybody's page last: nobody else waits for their turn.


class PageMaker:
    """Makes pages with a text that a test sets; pages for a greedy sender wait for a gate."""

    def __init__(self) -> None:
        self.made_paths: list[str] = []
        self.page_text = "open"
        self.gate = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.made_paths.append(scope["path"])
        if scope["path"].startswith("/costly"):
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.page_text.encode()})

    def version(self, scope: Any) -> Version:
        return Version(scope["path"], self.page_text)


async def fetch_page(cache: PageCache, path: str, sender: str) -> bytes:
    body = bytearray()

    async def send(message: Any) -> None:
        body.extend(message.get("body", b""))

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "client": (sender, 1), IS_PUBLIC_KEY: True}
    await cache(scope, receive, send)
    return bytes(body)


def start_fetches(cache: PageCache, *paths: str, sender: str = "127.0.0.2") -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(fetch_page(cache, path, sender)) for path in paths]


async def test_a_costly_page_delays_no_other_sender() -> None:
    maker = PageMaker()
    cache = PageCache(maker, maker.version)
    greedy = start_fetches(cache, *(f"/costly/{number}" for number in range(30)), "/page")
    await asyncio.sleep(0)
    honest = start_fetches(cache, "/page", "/page", sender="127.0.0.3")
    await asyncio.sleep(0)
    maker.gate.set()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*honest) == [b"open", b"open"]
        before = len(maker.made_paths)
        await asyncio.gather(*greedy)
    assert before < 5, maker.made_paths[:before]
    assert maker.made_paths.count("/page") == 1, "whose turn comes later gets what is there"


async def test_a_page_made_after_a_change_is_cached_as_the_changed_page() -> None:
    """The experiment is paused while a page waits for its turn, and resumed: nobody reads then that it is paused."""
    maker = PageMaker()
    cache = PageCache(maker, maker.version)
    waiting = start_fetches(cache, "/costly", "/page")
    await asyncio.sleep(0)
    maker.page_text = "paused"
    maker.gate.set()
    async with asyncio.timeout(10):
        assert (await asyncio.gather(*waiting))[1] == b"paused"
        maker.page_text = "open"
        assert await fetch_page(cache, "/page", "127.0.0.3") == b"open"


async def test_a_page_that_changes_while_it_is_made_is_not_cached() -> None:
    maker = PageMaker()
    cache = PageCache(maker, maker.version)
    (making,) = start_fetches(cache, "/costly")
    while not maker.made_paths:
        await asyncio.sleep(0)
    maker.page_text = "paused"
    maker.gate.set()
    async with asyncio.timeout(10):
        assert await making == b"paused"
        maker.page_text = "open"
        assert await fetch_page(cache, "/costly", "127.0.0.3") == b"open"
