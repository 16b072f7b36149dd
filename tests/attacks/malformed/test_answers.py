"""Servers that answer without end, with no HTTP, or with what a terminal obeys."""

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Client, Ledger, ReportStatus
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Rule, Rules
from privateer_core.answer.share_source import ShareSource
from privateer_core.errors import Unavailable
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY
from privateer_lab.cli.command_line import main
from privateer_lab.doctor import places as answers
from privateer_lab.services import rest
from privateer_shuffler.upstream import Upstream
from tests.support.answers import document
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, Device, Server
from tests.support.hostile import Hostile, hostile
from tests.support.publications import published
from tests.support.specs import make_spec

# A server that answers for ever, or with more than memory holds, costs a device one timeout and a few megabytes.


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
    return sum(int(limit.read_text().split()[2]) if limit.exists() else 6 * len(MEGABYTE) for limit in limits)


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
def test_an_answer_that_drips_ends_with_the_timeout(tmp_path, kind, reply):
    with hostile(reply) as server:
        url = server.url.replace("http:", "https:") if reply is slow_handshake else server.url
        with pytest.raises(Unavailable):
            ask(url, tmp_path / "ledger.db", SHORT, kind)
        dripped = server.n_sent
    whole = 200 * (len(b"HTTP/1.1 103 Early Hints\r\n\r\n") if reply is slow_promises else 1)
    assert dripped < whole


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(("reply", "max_mebibytes"), [(huge, 16), (huge_problem, 1), (bomb, 1)])
def test_an_answer_is_cut_off_at_its_size_and_never_unpacked(tmp_path, kind, reply, max_mebibytes):
    """The server can send as much as the bound, and what the buffers of two sockets hold."""
    with hostile(reply) as server, pytest.raises(Unavailable):
        ask(server.url, tmp_path / "ledger.db", PATIENT, kind)
    assert server.n_sent <= max_mebibytes * len(MEGABYTE) + buffered()
    assert b"accept-encoding: identity" in server.heard[0].lower()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_device_follows_no_redirect(tmp_path: Path, kind: str) -> None:
    def silent(service: Hostile, connection: socket.socket) -> None:
        service.drip(connection, [HEAD + b"content-length: 0\r\n\r\n"])

    with hostile(silent) as elsewhere:

        def redirect(service: Hostile, connection: socket.socket) -> None:
            target = elsewhere.url.encode()
            service.drip(connection, [b"HTTP/1.1 307 Go\r\nlocation: " + target + b"/x\r\ncontent-length: 0\r\n\r\n"])

        with hostile(redirect) as server, pytest.raises(Unavailable):
            ask(server.url, tmp_path / "ledger.db", PATIENT, kind)
        assert elsewhere.heard == []


# A hostile server answers the command line with gigabytes, packed, without end, or with what a terminal obeys.


MIB = 1 << 20
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@contextmanager
def hostile_of_command_line(
    body: bytes, times: int = 1, status: int = 200, **headers: str
) -> Iterator[tuple[str, list[int]]]:
    """Serve ``times`` copies of a body to each request; yields the address and the number of bytes, in a list."""
    n_bytes_written = [0]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.end_headers()
            with suppress(OSError):
                for _ in range(times):
                    self.wfile.write(body)
                    n_bytes_written[0] += len(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", n_bytes_written
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_info:
        main(list(arguments))
    output = capsys.readouterr()
    return int(exit_info.value.code or 0), output.out + output.err


DEFAULTS = dict(rest.bounded_request.__kwdefaults__)
COMMANDS = [
    ["list"],
    ["answer", "test", "--as", "progress"],
    ["answer", "test", "--as", "policy"],
    ["account", "experiment", "test"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_answer_without_end_is_not_read_to_its_end(capsys, monkeypatch, arguments):
    monkeypatch.setattr(rest.bounded_request, "__kwdefaults__", DEFAULTS | {"bytes_max": 4 * MIB})
    with hostile_of_command_line(bytes(MIB), times=200) as (url, n_bytes_written):
        code, text = run_command(capsys, *arguments, "--url", url)
    assert code == 3
    assert "no Privateer server's" in text
    assert len(text.splitlines()) == 1
    assert n_bytes_written[0] < 50 * MIB


def test_by_default_an_answer_has_64_mebibytes() -> None:
    assert rest.bounded_request.__kwdefaults__["bytes_max"] == rest.MAX_RESPONSE_BYTES == 64 * MIB


def test_a_packed_answer_is_not_unpacked(capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress(bytes(64 * MIB))
    with hostile_of_command_line(packed, Content_Encoding="gzip", Content_Length=str(len(packed))) as (url, _):
        code, text = run_command(capsys, "list", "--url", url)
    assert code == 3
    assert "packed" in text


def test_an_answer_that_drips_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def monotonic() -> float:
        now[0] += 40
        return now[0]

    monkeypatch.setattr(rest.time, "monotonic", monotonic)
    with hostile_of_command_line(b"x", times=50) as (url, _), pytest.raises(rest.UnboundedResponse, match="too long"):
        rest.bounded_request("GET", url)


def test_the_doctor_reads_no_answer_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest.bounded_request, "__kwdefaults__", DEFAULTS | {"bytes_max": MIB})
    with hostile_of_command_line(bytes(MIB), times=200) as (url, n_bytes_written):
        assert answers.fetch_or_none(url) is None
    assert n_bytes_written[0] < 50 * MIB


@pytest.mark.parametrize(
    ("status", "arguments"),
    [(200, ["list"]), (200, COMMANDS[-1]), *((status, words) for status in (404, 500) for words in COMMANDS)],
)
def test_no_text_of_a_server_controls_the_terminal(capsys, arguments, status):
    row = dict.fromkeys(("name", "status", "model", "algorithm", "detail", "remedy", "field", "title"), f"a{ESCAPES}b")
    row |= {"type": "urn:privateer:problem:conflict"}
    answer = {**row, "version": 1, "accepted": 3, "experiments": [{**row, "version": 1}], f"k{ESCAPES}": [ESCAPES]}
    with hostile_of_command_line(json.dumps(answer).encode(), status=status) as (url, _):
        _, text = run_command(capsys, *arguments, "--url", url)
    assert text
    assert not set("\x1b\x07\x9b\u202e") & set(text)


@pytest.mark.parametrize("status", [401, 404, 500])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_refusal_by_another_service_is_a_wrong_address(capsys, arguments, status):
    with hostile_of_command_line(b"<h1>No</h1>", status=status) as (url, _):
        code, text = run_command(capsys, *arguments, "--url", url)
    assert (code, "--url" in text, "correct the address" in text) == (3, True, True)


def test_names_in_other_scripts_are_printed_as_they_are() -> None:
    document = {"levels": ["naïve", "日本", "می\u200cخواهم", "👩\u200d👧"], "share": [1, 0.5, None, True]}
    response = httpx.Response(200, content=json.dumps(document).encode())
    assert rest._parse_object(response) == document


@pytest.mark.parametrize("began", ["yesterday", ESCAPES, "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", 7])
@pytest.mark.parametrize("face", [[], ["--markdown"], ["--json"]], ids=str)
def test_an_answer_with_an_invalid_start_time_is_refused(capsys, face, began):
    answer = document(Answer("learning", 2000, 2, None)) | {"began": began}
    with hostile_of_command_line(json.dumps(answer).encode()) as (url, _):
        code, text = run_command(capsys, "answer", "test", "--url", url, *face)
    assert (code, len(text.splitlines())) == (3, 1)
    assert "the answer is not that of an experiment" in text


@pytest.mark.parametrize("field", ["experiment", "algorithm"])
def test_an_answer_with_a_huge_name_is_refused(capsys: pytest.CaptureFixture[str], field: str) -> None:
    answer = document(Answer("learning", 2000, 2, None)) | {field: "x" * 100_000}
    with hostile_of_command_line(json.dumps(answer).encode()) as (url, _):
        code, text = run_command(capsys, "answer", "test", "--url", url, "--markdown")
    assert (code, len(text) < 1000) == (3, True)


def test_an_answer_with_too_many_rules_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    rule = Rule("everybody", (), "a", 1.0, None, None, None, 0.5, "not known")
    answer = document(Answer("learning", 2000, 2, None), rules=Rules((rule,), None, "people", ShareSource.COUNTED))
    answer["conclusion"]["rules"]["rules"] *= 10_000  # a table of 100,000 takes a minute
    with hostile_of_command_line(json.dumps(answer).encode()) as (url, _):
        code, text = run_command(capsys, "answer", "test", "--url", url)
    assert (code, len(text.splitlines())) == (3, 1)


# The learning server answers without end, or with a few bytes that become very many.


ENDLESS = 400
"""Pieces of 1 MiB that a server would send, if somebody took them."""


class CountedPieces(httpx.AsyncByteStream):
    """A body that counts the pieces read from it."""

    def __init__(self, piece: Callable[[], bytes], pieces: int, pause: float = 0.0) -> None:
        self._piece, self._pieces, self._pause = piece, pieces, pause
        self.n_pieces_read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._pieces):
            self.n_pieces_read += 1
            await asyncio.sleep(self._pause)
            yield self._piece()


def upstream_of(status: int, body: CountedPieces, headers: dict[str, str] | None = None) -> Upstream:
    return Upstream(
        "http://server", httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, stream=body))
    )


CALLS: dict[str, Callable[[Upstream], object]] = {
    "key": lambda server: server.check_key(),
    "publication": lambda server: server.fetch_publication("spring"),
    "delivery": lambda server: server.deliver("test", b"batch", "0" * 128),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("status", "max_pieces"), [(200, 65), (409, 1), (500, 1)])
async def test_a_body_without_end_is_cut_off(call: str, status: int, max_pieces: int) -> None:
    """A publication has 64 MiB at most, whatever else a server says 64 KiB."""
    body = CountedPieces(lambda: bytes(MIB), ENDLESS)
    with pytest.raises(Unavailable):
        await CALLS[call](upstream_of(status, body))  # type: ignore[misc]
    assert body.n_pieces_read <= max_pieces


@pytest.mark.parametrize("call", CALLS)
async def test_a_compressed_body_is_not_unpacked(call: str) -> None:
    packed = gzip.compress(bytes(64 * MIB))
    body = CountedPieces(lambda: packed, 1)
    with pytest.raises(Unavailable, match="compressed"):
        await CALLS[call](upstream_of(200, body, {"content-encoding": "gzip"}))  # type: ignore[misc]
    assert body.n_pieces_read == 0


async def test_a_body_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps any time limit for a single read from running out."""
    monkeypatch.setattr("privateer_shuffler.upstream._ANSWER_SECONDS", 0.2)
    body = CountedPieces(lambda: b"x", 10**6, pause=0.02)
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable):
            await upstream_of(200, body).fetch_publication("spring")


async def test_the_shuffler_asks_for_no_compression() -> None:
    asked_for: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        asked_for.append(request.headers["accept-encoding"])
        return httpx.Response(404)

    with pytest.raises(Unavailable, match="answered 404"):
        await Upstream("http://server", httpx.MockTransport(note)).check_key()
    assert asked_for == ["identity"]


# A header that nobody signs says that an experiment is paused: it delays reports, and destroys none.


SPEC = make_spec({"privacy.model": "none", "privacy.epsilon": None})


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_choice_survives_a_join_during_a_pause(seconds: float, tmp_path: Path) -> None:
    server, clock = Server(published(SPEC)), Hands()
    device = Device(tmp_path, server, clock)
    device.start().join(SPEC.name).choose(CONTEXT)
    server.headers = {ASKS_HEADER: ASKS_NOBODY}
    session = device.start().join(SPEC.name)
    server.headers = {}
    clock.time += seconds
    assert session.report(0.7) == ReportStatus.ACCEPTED
    assert len(server.posts) == 1
