"""Uploads without a token are turned away over real sockets: at once, unread, in turn, and nobody else notices."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from privateer_core.serving import rate_limit
from privateer_core.serving.connections import Connections
from privateer_core.serving.http_protocol import GuardedProtocol
from privateer_core.serving.process import _make_config
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.token_gate import TokenGate, TokenKeys
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.token import authorization
from tests.support.issuing import ORIGIN, minted
from tests.support.issuing import settings as tokens
from tests.support.senders import KEY, TRUSTED
from tests.unit.serving.test_http_protocol import State, app, send_raw

PATH = "/experiments/spring/reports"


def upload(headers: str = "", body: bytes = b"hello", path: str = PATH) -> bytes:
    """An upload as bytes."""
    return f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


def with_token(token: bytes) -> str:
    return f"authorization: {authorization(token)}\r\n"


CLOSE = "connection: close\r\n"


@asynccontextmanager
async def gated_port(
    folder: Path, *origins: str, buffer: int = 0
) -> AsyncIterator[tuple[int, Counter[str], TokenGate]]:
    """Serve uploads that need tokens; yield the port and the counts of refusals."""
    gate = TokenGate(TokenKeys(tokens(folder / "keys").keys), (ORIGIN,))
    refused: Counter[str] = Counter()
    senders = TrustedKeys(TRUSTED)
    rate_limit = RateLimit(
        gate, lambda path: "spring" if path == PATH else None, refused.update, senders, origins=origins
    )
    config, state = _make_config(app, "off", Connections(100)), State()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: GuardedProtocol(Connections(100), rate_limit, config=config, server_state=state, app_state={}),
        "127.0.0.1",
        0,
    )
    if buffer:
        server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    yield server.sockets[0].getsockname()[1], refused, gate
    server.close()
    for connection in list(state.connections):
        connection.drop()


async def test_an_upload_without_a_token_is_refused(tmp_path: Path) -> None:
    async with gated_port(tmp_path) as (port, refused, _):
        answer = await send_raw(port, upload(CLOSE))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 ")
        assert b'www-authenticate: PrivateToken challenge="' in head
        assert b"urn:privateer:problem:token-missing" in body
        assert f"content-length: {len(body)}".encode() in head
        assert refused == {"token-missing": 1}


SHOP, OTHER = "https://shop.example", "https://other.example"


def cors(answer: bytes) -> dict[str, str]:
    """What an answer tells browsers of origins."""
    lines = (line.partition(": ") for line in answer.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n"))
    return {name: text for name, _, text in lines if name.startswith("access-control-") or name == "vary"}


@pytest.mark.parametrize("headers", ["", with_token(bytes(354)), f"{UPLOAD.header}: x\r\n"], ids=["no", "bad", "id"])
async def test_a_named_origin_can_read_the_refusal(tmp_path: Path, headers: str) -> None:
    """Else a browser hides the answer, and the page cannot tell a token that is missing from a service that is away."""
    async with gated_port(tmp_path, SHOP) as (port, _, _):
        for _ in range(2):  # what was answered before is kept
            for origin, named in ((SHOP, SHOP), (OTHER, None), ("", None)):
                asks = f"origin: {origin}\r\n" if origin else ""
                answer = await send_raw(port, upload(CLOSE + asks + headers))
                assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 403 "))
                assert cors(answer).get("access-control-allow-origin") == named
                assert cors(answer)["vary"] == "origin"
                assert ("access-control-expose-headers" in cors(answer)) == bool(named)


async def test_all_origins_can_read_the_refusal_where_all_are_allowed(tmp_path: Path) -> None:
    async with gated_port(tmp_path, "*") as (port, _, _):
        answer = await send_raw(port, upload(f"{CLOSE}origin: {OTHER}\r\n"))
        assert cors(answer)["access-control-allow-origin"] == "*"


async def test_no_origin_can_read_the_refusal_by_default(tmp_path: Path) -> None:
    async with gated_port(tmp_path) as (port, _, _):
        assert cors(await send_raw(port, upload(f"{CLOSE}origin: {SHOP}\r\n"))) == {}


@pytest.mark.parametrize("target", [f"http://here{PATH}", PATH.replace("r", "%72"), f"{PATH}?a=1", f"{PATH}#a"])
async def test_an_upload_is_recognized_by_every_spelling_of_its_path(tmp_path: Path, target: str) -> None:
    """Else a flood of such uploads would have a task each."""
    async with gated_port(tmp_path) as (port, refused, _):
        assert (await send_raw(port, upload(CLOSE, path=target))).startswith(b"HTTP/1.1 401 ")
        assert refused == {"token-missing": 1}


def signed() -> str:
    return f"{UPLOAD.header}: {UPLOAD.sign(b'hello', KEY)}\r\n"


@pytest.mark.parametrize("make_header", [signed, lambda: with_token(minted())], ids=["signed", "paid"])
async def test_signed_and_paid_uploads_reach_the_application(tmp_path: Path, make_header: Callable[[], str]) -> None:
    header = make_header()
    async with gated_port(tmp_path) as (port, refused, _):
        assert (await send_raw(port, upload(CLOSE + header))).endswith(b"\r\n\r\n5")
        assert (await send_raw(port, upload(CLOSE, path="/other"))).endswith(b"\r\n\r\n5")
        assert not refused


@pytest.mark.parametrize("text", ["", "x", "0" * 16 + ".1.1." + "0" * 64 + "." + "0" * 128])
async def test_a_forged_sender_header_is_refused(tmp_path: Path, text: str) -> None:
    async with gated_port(tmp_path) as (port, refused, _):
        assert (await send_raw(port, upload(f"{CLOSE}{UPLOAD.header}: {text}\r\n"))).startswith(b"HTTP/1.1 403 ")
        assert refused == {"sender-refused": 1}


async def test_a_token_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with gated_port(tmp_path) as (port, _, gate):
        token = minted()
        assert (await send_raw(port, upload(CLOSE + with_token(token)))).endswith(b"\r\n\r\n5")
        monkeypatch.setattr("privateer_core.wire.token.Token.is_signed", lambda *_: False)
        assert gate.admit(authorization(token).encode(), "spring").nonce == token[2:34]
        monkeypatch.undo()
        assert gate.admit(authorization(token).encode(), "spring").nonce == token[2:34]


async def test_a_connection_stays_open_after_a_refusal(tmp_path: Path) -> None:
    """A device may come again on the same connection, with a token."""
    async with gated_port(tmp_path) as (port, refused, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for times in range(1, 6):
            writer.write(upload())
            assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 401 ")
            assert refused == {"token-missing": times}
        writer.write(upload(CLOSE + with_token(minted())))
        assert (await reader.read()).endswith(b"\r\n\r\n5")
        writer.close()


async def test_a_chunked_body_of_a_refused_upload_is_discarded(tmp_path: Path) -> None:
    async with gated_port(tmp_path) as (port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = upload(body=bytes(1000))
        writer.write(whole[:-900])
        assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 401 ")  # before the body is there
        writer.write(whole[-900:])
        writer.write(upload(CLOSE + with_token(minted()), bytes(7)))
        assert (await reader.read()).endswith(b"\r\n\r\n7")
        writer.close()


async def test_an_endless_body_of_a_refused_upload_is_not_read(tmp_path: Path) -> None:
    async with gated_port(tmp_path) as (port, _, _):
        answer = await send_raw(port, upload(body=bytes(1 << 20)))
        assert answer.startswith(b"HTTP/1.1 401 ") or not answer  # the end resets the connection


async def test_a_refusal_does_not_wait_for_the_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privateer_core.serving.http_protocol._LINGER_SECONDS", 0.2)
    async with gated_port(tmp_path) as (port, _, _):
        started = time.monotonic()
        assert (await send_raw(port, upload(body=bytes(1000))[:-10])).startswith(b"HTTP/1.1 401 ")
        assert time.monotonic() - started < 5


async def test_pipelined_uploads_without_tokens_wait_for_their_turns(tmp_path, monkeypatch):
    held: list[rate_limit.RefusedUpload] = []
    monkeypatch.setattr(rate_limit.RateLimit, "hold", lambda _, connection, cost: held.append(connection))
    async with gated_port(tmp_path) as (port, refused, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(upload() * 100)
        for times in range(1, 4):
            assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 401 ")
            assert (len(held), refused["token-missing"]) == (times, times)
            held[-1].read_on()
        writer.close()


async def test_refusals_are_rate_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2 units a tick, 20 connections that send again and again get 2 answers a tick after their first."""
    monkeypatch.setattr(rate_limit, "_UNITS_PER_TICK", 2)
    monkeypatch.setattr(rate_limit, "_TICK_SECONDS", 0.5)

    async def sender(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(upload())
                await reader.readuntil(b"}}")
        finally:
            writer.close()

    async with gated_port(tmp_path) as (port, refused, _):
        started = time.monotonic()
        senders = [asyncio.create_task(sender(port)) for _ in range(20)]
        async with asyncio.timeout(20):
            while refused["token-missing"] <= 20:
                await asyncio.sleep(0.01)
        ticks = 1 + (time.monotonic() - started) / 0.5
        assert refused["token-missing"] <= 20 + 2 * ticks
        started = time.monotonic()
        assert (await send_raw(port, upload(CLOSE + with_token(minted())))).endswith(b"\r\n\r\n5")
        assert time.monotonic() - started < 2.5  # somebody new does not wait for them, who take 5 seconds
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)


async def test_a_sender_that_does_not_read_refusals_is_not_read(tmp_path: Path) -> None:
    """Refusals are written without a request, and must not fill memory: their sender waits until they are taken."""
    loop = asyncio.get_running_loop()
    async with gated_port(tmp_path, buffer=4096) as (port, refused, _), asyncio.timeout(60):
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            for _ in range(120):
                await loop.sock_sendall(connection, upload())
                await asyncio.sleep(0.03)
            assert 0 < refused["token-missing"] < 80, "the others wait where they are"
        assert (await send_raw(port, upload(CLOSE))).startswith(b"HTTP/1.1 401 ")
