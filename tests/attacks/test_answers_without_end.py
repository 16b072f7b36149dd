"""A server that answers for ever, or with more than memory holds, costs a device one timeout and a few megabytes."""

import asyncio
import gzip
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from privateer_client import AsyncClient, Client, Ledger
from privateer_core.errors import Unavailable
from tests.support.hostile import Hostile, hostile

HEAD = b"HTTP/1.1 200 OK\r\n"
MEGABYTE = b"\0" * (1 << 20)
PATIENT = 60.0
SHORT = 0.4
"""Seconds for a request; what drips would take ten times as long."""


def slow_headers(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [HEAD, b"x: "] + [b"y"] * 200 + [b"\r\ncontent-length: 0\r\n\r\n"], 0.02)


def slow_body(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [HEAD + b"content-length: 200\r\n\r\n"] + [b"y"] * 200, 0.02)


def slow_body_without_length(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [b"HTTP/1.0 200 OK\r\n\r\n"] + [b"y"] * 200, 0.02)


def slow_promises(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [b"HTTP/1.1 103 Early Hints\r\n\r\n"] * 200, 0.02)


def slow_handshake(service: Hostile, connection: socket.socket) -> None:
    """A record of TLS that is announced with 16 KiB."""
    service.drip(connection, [b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc"] + [b"y"] * 200, 0.02)


def buffered() -> int:
    """The bytes that this system holds of a connection at most, which nobody has read."""
    limits = [Path(f"/proc/sys/net/ipv4/tcp_{way}") for way in ("rmem", "wmem")]
    return sum(int(one.read_text().split()[2]) if one.exists() else 6 * len(MEGABYTE) for one in limits)


def huge(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [HEAD + b"content-length: 134217728\r\n\r\n"] + [MEGABYTE] * 128)


def huge_problem(service: Hostile, connection: socket.socket) -> None:
    service.drip(connection, [b"HTTP/1.1 503 No\r\ncontent-length: 134217728\r\n\r\n"] + [MEGABYTE] * 128)


def bomb(service: Hostile, connection: socket.socket) -> None:
    body = gzip.compress(MEGABYTE * 32)
    head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    service.drip(connection, [head, body])


def ask(url: str, ledger: Path, timeout: float, kind: str) -> None:
    """Join an experiment of a server."""
    if kind == "sync":
        with Client(url, ledger=Ledger(ledger), timeout=timeout) as client:
            client.join("test")
        return

    async def join() -> None:
        async with AsyncClient(url, ledger=Ledger(ledger), timeout=timeout) as client:
            await client.join("test")

    asyncio.run(join())


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("reply", [slow_headers, slow_body, slow_body_without_length, slow_promises, slow_handshake])
def test_an_answer_that_drips_ends_with_the_timeout(
    tmp_path: Path, kind: str, reply: Callable[[Hostile, socket.socket], None]
) -> None:
    with hostile(reply) as server:
        url = server.url.replace("http:", "https:") if reply is slow_handshake else server.url
        with pytest.raises(Unavailable):
            ask(url, tmp_path / "ledger.db", SHORT, kind)
        dripped = server.sent
    whole = 200 * (len(b"HTTP/1.1 103 Early Hints\r\n\r\n") if reply is slow_promises else 1)
    assert dripped < whole


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(("reply", "most"), [(huge, 16), (huge_problem, 1), (bomb, 1)])
def test_an_answer_is_cut_off_at_its_size_and_never_unpacked(
    tmp_path: Path, kind: str, reply: Callable[[Hostile, socket.socket], None], most: int
) -> None:
    """What the server could send: the bound, and what the buffers of two sockets may hold."""
    with hostile(reply) as server, pytest.raises(Unavailable):
        ask(server.url, tmp_path / "ledger.db", PATIENT, kind)
    assert server.sent <= most * len(MEGABYTE) + buffered()
    assert b"accept-encoding: identity" in server.heard[0].lower()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_device_is_sent_nowhere_else(tmp_path: Path, kind: str) -> None:
    def silent(service: Hostile, connection: socket.socket) -> None:
        service.drip(connection, [HEAD + b"content-length: 0\r\n\r\n"])

    with hostile(silent) as elsewhere:

        def redirect(service: Hostile, connection: socket.socket) -> None:
            where = elsewhere.url.encode()
            service.drip(connection, [b"HTTP/1.1 307 Go\r\nlocation: " + where + b"/x\r\ncontent-length: 0\r\n\r\n"])

        with hostile(redirect) as server, pytest.raises(Unavailable):
            ask(server.url, tmp_path / "ledger.db", PATIENT, kind)
        assert elsewhere.heard == []
