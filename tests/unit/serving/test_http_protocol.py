"""The limits of a connection over real sockets, with a listener in this process and short deadlines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from privateer_core.serving import http_protocol
from privateer_core.serving.connections import UNREAD_BYTES_MAX, Connections
from privateer_core.serving.http.answer import make_answer
from privateer_core.serving.http_protocol import HEADER_BYTES_MAX, GuardedProtocol
from privateer_core.serving.process import _make_config


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers the number of bytes that it read; reads nothing at ``/deaf``."""
    size, has_more = 0, scope["path"] != "/deaf"
    while has_more:
        message = await receive()
        size, has_more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = bytes(8 << 20) if scope["path"] == "/large" else str(size).encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


class State:
    def __init__(self) -> None:
        self.total_requests = 0
        self.connections: set[Any] = set()
        self.tasks: set[Any] = set()
        self.default_headers: list[Any] = []


@asynccontextmanager
async def listening(answers: Any = app, unread_max: int = UNREAD_BYTES_MAX) -> AsyncIterator[tuple[int, Connections]]:
    table, state = Connections(100, unread_max), State()
    config = _make_config(answers, "off", table)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: GuardedProtocol(table, config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1], table
    server.close()
    for connection in list(state.connections):
        connection.drop()


async def send_raw(port: int, *parts: bytes) -> bytes:
    """Everything that is answered until the other end closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


HEAD = b"POST / HTTP/1.1\r\nhost: here\r\n"


async def test_a_request_is_answered() -> None:
    async with listening() as (port, table):
        answer = await send_raw(port, HEAD + b"connection: close\r\ncontent-length: 5\r\n\r\nhe", b"llo")
        assert answer.endswith(b"\r\n\r\n5")
        async with asyncio.timeout(20):
            while len(table):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("ended", [b"\r\n\r\n", b""])
async def test_large_headers_are_refused(ended: bytes) -> None:
    async with listening() as (port, _):
        answer = await send_raw(port, HEAD + b"x: " + b"a" * HEADER_BYTES_MAX + ended)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"urn:privateer:problem:headers-too-large" in answer


async def test_the_header_limit_does_not_apply_to_bodies() -> None:
    async with listening() as (port, _):
        body = bytes(10 * HEADER_BYTES_MAX)
        head = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        assert (await send_raw(port, head + body)).endswith(b"\r\n\r\n%d" % len(body))


@pytest.mark.parametrize(
    "request_",
    [b"nonsense\r\n\r\n", HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 3 * HEADER_BYTES_MAX],
    ids=["no HTTP", "framing without a body"],
)
async def test_bytes_other_than_a_request_are_not_read(request_: bytes) -> None:
    async with listening() as (port, _):
        answer = await send_raw(port, request_)
    assert b"200 OK" not in answer


BODY = bytes(1 << 20)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("path", [b"/", b"/deaf"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"content-length: 1", b"x"),
        (b"content-length: 5", b"x"),
        (b"content-length: 5\r\nexpect: 100-continue", b""),
        (b"content-length: %d" % len(BODY), BODY[: 32 << 10]),
        (b"transfer-encoding: chunked", b"1\r\nx\r\n0\r\n\r\n"),
        (b"transfer-encoding: chunked", b""),
    ],
)
async def test_an_unexpected_body_is_refused_with_a_problem(method, path, headers, body):
    """In one piece or two; the refusal arrives although the sender has not sent everything."""
    head = b"%s %s HTTP/1.1\r\nhost: here\r\n%s\r\n\r\n" % (method, path, headers)
    for parts in ((head + body,), (head, body)):
        async with listening() as (port, table):
            answer = await send_raw(port, *parts)
            assert answer.startswith(b"HTTP/1.1 400 "), (parts[0][:80], answer)
            assert b"a request with this method has no body" in answer
            assert len(table) <= 1


async def test_a_get_with_an_empty_body_is_answered() -> None:
    async with listening() as (port, _):
        answer = await send_raw(port, b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_pipelined_requests_are_answered_one_by_one() -> None:
    """Also where a piece ends within the blank line, or a body has blank lines, as its length or its chunks say."""
    get, n_running = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n", 0
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n8\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n"
    blank = HEAD + b"content-length: 8\r\n\r\n" + 2 * b"\r\n\r\n"

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        nonlocal n_running
        n_running += 1
        assert n_running == 1
        await asyncio.sleep(0)
        n_running -= 1
        await app(scope, receive, send)

    requests = 100 * (get + blank + chunked) + get.replace(b"here", b"here\r\nconnection: close")
    for cuts in ((), range(0, len(requests), len(get) - 2)):
        parts = [requests[start:end] for start, end in zip((0, *cuts), (*cuts, len(requests)), strict=True)]
        async with listening(respond) as (port, _):
            answers = bodies(await send_raw(port, *parts))
        assert answers == 100 * [b"0", b"8", b"8"] + [b"0"]


async def test_a_sender_of_more_than_is_parsed_is_disconnected() -> None:
    """The memory of a sender is bounded: its first connections are closed, and other senders are answered."""
    flood = b"GET /waits HTTP/1.1\r\nhost: here\r\n\r\n" * 2000

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/waits":
            await asyncio.sleep(60)
        await app(scope, receive, send)

    async with listening(respond, unread_max=2 * len(flood)) as (port, table), asyncio.timeout(20):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(5)]
        for writer in writers:
            writer.write(flood)
        while len(table) > 2:
            await asyncio.sleep(0.01)
        assert table.unread <= 2 * len(flood)
        assert bodies(await send_raw(port, b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")) == [b"0"]
        for writer in writers:
            writer.close()


@pytest.mark.parametrize(
    ("deadline", "request_"),
    [
        ("_HEADER_SECONDS", b""),
        ("_HEADER_SECONDS", b"GET / HTTP/1.1\r\nhost:"),
        ("_BODY_SECONDS", HEAD + b"content-length: 5\r\n\r\nhe"),
        ("_LINGER_SECONDS", b"POST /deaf HTTP/1.1\r\nhost: here\r\ncontent-length: 5\r\n\r\nhe"),
    ],
    ids=["silence", "headers", "body", "a body that nobody reads"],
)
async def test_slow_senders_are_disconnected(monkeypatch: pytest.MonkeyPatch, deadline: str, request_: bytes) -> None:
    monkeypatch.setattr(http_protocol, deadline, 0.1)
    async with listening() as (port, table):
        await send_raw(port, request_)
        assert len(table) == 0


async def test_slow_receivers_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "_BODY_SECONDS", 0.1)
    monkeypatch.setattr(http_protocol, "_HEADER_SECONDS", 0.1)
    monkeypatch.setattr(http_protocol, "_BYTES_PER_SECOND", 1 << 30)
    async with listening() as (port, table):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n")
        async with asyncio.timeout(20):
            while not len(table):
                await asyncio.sleep(0.01)
            while len(table):
                await asyncio.sleep(0.01)
        writer.close()


class FastPathApp:
    """Takes requests that are there as a whole: at once, a little later, or not at all, by their path."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    def answer_at_once(self, scope: Any, body: bytearray, reply: Any) -> bool:
        path = scope["path"]
        if path == "/else":
            return False
        self.paths.append(path)
        answer = make_answer(200, b"taken %d" % len(body), b"text/plain")
        if path == "/later":
            asyncio.get_running_loop().call_later(0.05, reply, answer)
        else:
            reply(answer)
        return True


def upload(path: str, last: bool = False) -> bytes:
    closing = "connection: close\r\n" if last else ""
    return f"POST {path} HTTP/1.1\r\nhost: here\r\n{closing}content-length: 5\r\n\r\nhello".encode()


def bodies(answers: bytes) -> list[bytes]:
    """The bodies of answers whose headers tell their length."""
    texts = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        texts.append(answers[:length])
        answers = answers[length:]
    return texts


@pytest.mark.parametrize("paths", [["/now"], ["/later"], ["/else"], ["/now", "/else", "/later", "/now", "/else"]])
@pytest.mark.parametrize("at_a_time", [True, False], ids=["pipelined", "one by one"])
async def test_complete_requests_are_answered_in_order(paths: list[str], at_a_time: bool) -> None:
    """Answers keep the order of requests on the fast and the usual path, and the last answer closes the connection."""
    takes = FastPathApp()
    parts = [upload(path, path_number == len(paths) - 1) for path_number, path in enumerate(paths)]
    async with listening(takes) as (port, table):
        answers = await send_raw(port, *([b"".join(parts)] if at_a_time else parts))
        async with asyncio.timeout(20):
            while len(table):
                await asyncio.sleep(0.01)
    assert bodies(answers) == [b"5" if path == "/else" else b"taken 5" for path in paths]
    assert takes.paths == [path for path in paths if path != "/else"]


async def test_a_body_in_pieces_is_read_as_it_comes() -> None:
    takes = FastPathApp()
    async with listening(takes) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(upload("/now")[:-2])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"lo" + upload("/now", last=True))
        answers = await reader.read()
        writer.close()
    assert bodies(answers) == [b"5", b"taken 5"]
    assert takes.paths == ["/now"]


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        (b"content-length: 6", [b"ab", b"cd", b"ef"]),
        (b"transfer-encoding: chunked", [b"1\r\na\r\n"] * 2 + [b"0\r\n\r\n"]),
    ],
)
async def test_parts_of_a_body_wait_for_no_turn(monkeypatch, headers, parts):
    """The budget of bodies counts what the application has received; the end of a body waits for its turn."""
    pieces = asyncio.Queue[bytes]()

    async def read(scope: Any, receive: Any, send: Any) -> None:
        is_open = True
        while is_open:
            message = await receive()
            is_open = message.get("more_body", False)
            if message.get("body"):
                pieces.put_nowait(message["body"])
        await app(scope, lambda: None, send)

    async with listening(read) as (port, table), asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + headers + b"\r\n\r\n" + parts[0])
        await pieces.get()
        n_asked = 0

        def put(*_: Any) -> bool:
            nonlocal n_asked
            n_asked += 1
            return False

        monkeypatch.setattr(table.requests, "put", put)
        writer.write(parts[1])
        await pieces.get()
        assert n_asked == 0
        writer.write(parts[2])
        while not n_asked:
            await asyncio.sleep(0.001)
        assert pieces.empty()
        writer.close()


async def test_expect_100_continue_is_answered() -> None:
    async with listening(FastPathApp()) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head, _, body = upload("/now", last=True).partition(b"\r\n\r\n")
        writer.write(head + b"\r\nexpect: 100-continue\r\n\r\n")
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await reader.read()).endswith(b"5")
        writer.close()


async def test_a_disconnect_before_a_late_answer_is_ignored() -> None:
    takes = FastPathApp()
    async with listening(takes) as (port, table), asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(upload("/later"))
        while not takes.paths:
            await asyncio.sleep(0.001)
        writer.transport.abort()
        await asyncio.sleep(0.1)
        while len(table):
            await asyncio.sleep(0.01)
        assert bodies(await send_raw(port, upload("/later", last=True))) == [b"taken 5"]


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "_IDLE_SECONDS", 0.1)
    for path in ("/now", "/later", "/else"):
        async with listening(FastPathApp()) as (port, _):
            assert len(bodies(await send_raw(port, upload(path)))) == 1


@pytest.mark.parametrize("request_", [b"GET /waits HTTP/1.1\r\nhost: here\r\n\r\n", upload("/waits")[:-1]])
async def test_a_request_ended_by_shutdown_is_not_logged(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A long poll, or an upload that has not come to its end."""

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while True:
            await receive()

    async with listening(waits) as (port, table), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        while not (tasks := [task for task in asyncio.all_tasks() if "run_asgi" in str(task.get_coro())]):
            await asyncio.sleep(0.01)
        for task in tasks:  # as uvicorn does where requests last too long
            task.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")
        assert await reader.read() == b""
        await asyncio.gather(*tasks)
        while len(table):
            await asyncio.sleep(0.01)
        writer.close()
    assert caplog.text == ""


async def test_aborted_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """More requests at once than a connection may have, of pages that are answered in one write."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await make_answer(200, b"whole", b"text/plain").send(scope, send)

    async with listening(respond) as (port, table):
        await send_raw(port, b"GET / HTTP/1.1\r\nhost: here\r\n\r\n" * 50)
        async with asyncio.timeout(10):
            while len(table) or any("run_asgi" in str(all_task.get_coro()) for all_task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)
    assert caplog.text == ""
