"""Attackers hold sockets: idle, half open, in mid-header, in mid-body. Honest people hardly notice."""

import http.client
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from privateer_core.wire.batch import SIGNATURE_HEADER
from privateer_server.api.long_polls import POLLS_MAX, STREAMS_MAX
from tests.attacks.endpoints import SECONDS, SLOWER, Endpoint, Repeated, endpoint, hardly_slower, junk

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
def test_half_open_connections(endpoints: Endpoints, name: str, sockets: int) -> None:
    """Connections on which nothing is said: more than a process may have by default, or than a service keeps."""
    at = endpoints(name)
    held: list[socket.socket] = []

    def attack() -> Callable[[], object]:
        held.extend(at.connect("127.0.0.2") for _ in range(sockets))
        return lambda: [one.close() for one in held]

    assert hardly_slower(at, attack) < SLOWER


def endless(at: Endpoint, piece: bytes) -> int:
    """Bytes of a request's headers, a MiB at a time, that a service takes before it hangs up; 200 MiB at most."""
    with at.connect() as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: here\r\nx: ")
        sent = 0
        with suppress(ConnectionError):
            while sent < 200 * MIB:
                one.sendall(piece * (MIB // len(piece)))
                sent += MIB
    return sent


@pytest.mark.battery
@BOTH
@pytest.mark.parametrize("piece", [b"a" * 32, b"\r\nx: " + b"a" * 27], ids=["one line", "many lines"])
def test_a_header_that_never_ends(endpoints: Endpoints, name: str, piece: bytes) -> None:
    at = endpoints(name)
    at.forget_peak()
    before = at.memory()
    assert endless(at, piece) < 16 * MIB  # what socket buffers take
    assert at.memory() - before < 32 * MIB
    at.median(1)


def unfinished(at: Endpoint) -> Iterator[socket.socket]:
    """Uploads of 4 MiB that stop after the first."""
    head = f"POST {at.path} HTTP/1.1\r\nhost: here\r\ncontent-length: {4 * MIB}\r\n\r\n".encode()
    for _ in range(300):
        one = at.connect("127.0.0.2")
        one.setblocking(True)
        one.settimeout(SECONDS)
        with suppress(ConnectionError):
            one.sendall(head + bytes(MIB))
        yield one


@ONE
def test_uploads_that_stop_in_the_middle(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies take no more memory than the budget, and the attacker's own make room for others."""
    monkeypatch.setenv("PRIVATEER_BODY_BUDGET", str(32 * MIB))
    monkeypatch.setenv("PRIVATEER_BATCH_BYTES_MAX", str(16 * MIB))
    with endpoint(tmp_path, name) as at:
        held: list[socket.socket] = []

        def attack() -> Callable[[], object]:
            held.extend(unfinished(at))
            return lambda: [one.close() for one in held]

        before = at.memory()
        assert hardly_slower(at, attack) < SLOWER
        assert at.memory() - before < (32 + 64) * MIB


def test_strangers_who_wait_for_the_next_policy(server: Endpoint) -> None:
    """A long poll lasts a minute and costs one line: without a limit, those who wait keep others out."""
    asking = b"GET /experiments/test/policy?wait=30 HTTP/1.1\r\nhost: here\r\nif-none-match: *\r\n\r\n"
    at = server
    with ExitStack() as stack:
        held = [stack.enter_context(at.connect("127.0.0.2")) for _ in range(2 * POLLS_MAX)]
        for one in held:
            one.sendall(asking)
        at.median(10)  # the server has come to all of them
        answered = select.select(held, [], [], SECONDS)[0]
        assert len(answered) == POLLS_MAX
        assert all(one.recv(4096).startswith(b"HTTP/1.1 304 ") for one in answered)
        # All seats are one stranger's: somebody else gets one, and the stranger who waited longest has one less.
        with at.connect("127.0.0.3") as other:
            other.sendall(asking)
            waiting = [one for one in held if one not in answered]
            (loser,) = select.select(waiting, [], [], SECONDS)[0]
            assert loser is waiting[0]
            assert loser.recv(4096).startswith(b"HTTP/1.1 304 ")
            assert not select.select([other, *waiting[1:]], [], [], 0.5)[0]


def test_strangers_who_hold_streams(server: Endpoint) -> None:
    """One stranger takes all the streams that there are, and more: somebody else gets one, and reports hardly wait."""
    asking = b"GET /events HTTP/1.1\r\nhost: here\r\n\r\n"
    at = server
    held: list[socket.socket] = []

    def attack() -> Callable[[], object]:
        for _ in range(2 * STREAMS_MAX):
            one = at.connect("127.0.0.2")
            held.append(one)
            one.sendall(asking)
        return lambda: None

    assert hardly_slower(at, attack) < SLOWER
    begun = [one.recv(4096)[:13] for one in held]
    assert begun.count(b"HTTP/1.1 200 ") == STREAMS_MAX
    assert begun.count(b"HTTP/1.1 503 ") == STREAMS_MAX
    with at.connect("127.0.0.3") as other:
        other.sendall(asking)
        assert other.recv(4096).startswith(b"HTTP/1.1 200 ")
    for one in held:
        one.close()


def test_idle_sockets_on_the_door_for_batches(server: Endpoint) -> None:
    """Unsigned batches are refused before their bodies: those who wait to send one hold nothing."""
    at = server
    admin = urlsplit(at.admin)
    head = f"POST /batches HTTP/1.1\r\nhost: [::1]\r\n{SIGNATURE_HEADER}: {'0' * 128}\r\ncontent-length: {MIB}\r\n\r\n"
    held = [socket.create_connection((admin.hostname, admin.port), SECONDS) for _ in range(8)]
    try:
        for one in held:
            one.sendall(head.encode())
        for one in held:
            assert one.recv(4096).startswith(b"HTTP/1.1 403 ")
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize("reports", [pytest.param(1000, marks=pytest.mark.nightly), 1])
def test_junk_from_elsewhere(server: Endpoint, reports: int) -> None:
    """1.3 MB of sealed junk a second in large uploads, or report by report as fast as a thread does it."""
    at = server
    body, here = junk(at, reports), urlsplit(at.url)

    def send() -> None:
        source = ("127.0.0.2", 0)
        connection = http.client.HTTPConnection(here.hostname or "", here.port, SECONDS, source)
        with suppress(OSError):
            connection.request("POST", at.path, body)
            connection.getresponse().read()
        connection.close()

    def attack() -> Callable[[], object]:
        senders = [Repeated(send, 1.3e6 / len(body) / 8 if reports > 1 else 25) for _ in range(8)]
        return lambda: [one.end() for one in senders]

    assert hardly_slower(at, attack) < SLOWER
