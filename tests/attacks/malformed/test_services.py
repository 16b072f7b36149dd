"""A collector of traces or an issuer that answers with no HTTP, and names that a database or a log cannot hold."""

import asyncio
import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.serving.logs import JsonFormatter
from privateer_core.serving.token_gate import TokenKeys
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.keys import public_hex
from privateer_core.wire.publication import Header
from privateer_core.wire.token_keys import Directory
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support import issuing
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, header_for, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, TOKEN, Api, intake_of

# A collector of traces or an issuer that answers with no HTTP at all harms neither the server nor its log.


ANSWERS = {
    "no status": b"Privateer!\r\n\r\n",
    "status in words": b"HTTP/1.1 fine OK\r\n\r\n",
    "endless line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    "less than announced": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "chunks that are none": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
}


@contextmanager
def serving_replies(*replies: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Serve replies in turn, the last one repeatedly; yields the address and an event that is set by a connection."""
    connected, remaining = threading.Event(), list(replies)

    def answer(listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(1 << 16)
                connected.set()
                peer.sendall(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", connected
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
async def test_a_collector_cannot_stop_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    monkeypatch.setattr("privateer_server.traces._SEND_INTERVAL_SECONDS", 0.05)
    with serving_replies(reply) as (url, connected):
        settings = ServerSettings(data=tmp_path, admin_token=TOKEN, traces_url=url)
        async with serving(create_app(settings)) as client:
            assert (await Api(client).create(SMALL)).status_code == 201
            assert await asyncio.to_thread(connected.wait, 10)
            await asyncio.sleep(0.2)
            assert (await client.get("/readyz")).status_code == 200
            assert (
                await client.post("/experiments/test/pause", headers={"authorization": f"Bearer {TOKEN}"})
            ).is_success
        # The folder is free again: the last spans kept nothing from being closed.
    async with serving(create_app(ServerSettings(data=tmp_path, admin_token=TOKEN))) as client:
        assert (await Api(client).facts())["status"] == "paused"


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
def test_junk_yields_no_keys(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    uncaught = list[object]()
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    with serving_replies(reply) as (url, _):
        keys = TokenKeys(url)
        assert keys.all() == {}
        for thread in [candidate for candidate in threading.enumerate() if candidate.name == "token keys"]:
            thread.join(10)
        assert keys.all() == {}
    assert not uncaught
    log_warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert log_warnings in ([f"{url} cannot be read"], [f"{url} shows no token keys"])


@pytest.mark.parametrize("reply", ANSWERS.values(), ids=ANSWERS)
def test_a_truncated_answer_removes_no_keys(monkeypatch: pytest.MonkeyPatch, reply: bytes) -> None:
    page = Directory.from_keys(issuing.ISSUER, {"spring": [issuing.key()]}).encode()
    full_reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page
    with serving_replies(full_reply, reply) as (url, _):
        keys = TokenKeys(url)
        for _ in range(3):
            keys._read_at = -1e9
            keys.all()
            for thread in [candidate for candidate in threading.enumerate() if candidate.name == "token keys"]:
                thread.join(10)
        assert list(keys.all()) == ["spring"]


# Strangers name experiments and versions that a database has no value for: nothing fails, and nobody else waits.


STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
NAMES = ("test\0", "\0", "a\0b", "x" * 10_000)
VERSIONS = (2**63 - 1, 2**63, 2**64 - 1)


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServerSettings:
    if request.param == "sqlite":
        return ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=(tmp_path / "shufflers",))
    cluster: Cluster = request.getfixturevalue("postgres")
    return Shared.make(cluster, tmp_path).settings(tmp_path / "shufflers")


def bad_envelopes(header: Header, sealed: bytes) -> list[bytes]:
    """Envelopes for names and versions that are none, as no library of ours writes them."""
    fields = msgspec.structs.astuple(header)
    headers = [(name, *fields[1:]) for name in NAMES] + [(fields[0], version, *fields[2:]) for version in VERSIONS]
    return [msgspec.msgpack.encode((wrong_header, sealed)) for wrong_header in headers]


async def test_reports_with_malformed_headers_are_refused(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        api, intake = Api(client), intake_of(app)
        await api.create(SMALL)
        published = await api.publication()
        honest_reports = sealed_reports(published, 2)
        bodies = bad_envelopes(header_for(published), honest_reports[0])
        bodies += [body_of(published, [report]) for report in honest_reports]
        async with intake._write_lock:  # they are counted in one group
            tasks = [asyncio.create_task(client.post("/reports", content=body, auth=httpx.Auth())) for body in bodies]
            await asyncio.sleep(0.3)
        answers = await asyncio.gather(*tasks)
        assert [answer.status_code for answer in answers[-2:]] == [202, 202]
        assert {answer.status_code for answer in answers[:-2]} <= {400, 404, 409, 410}, [each.text for each in answers]


async def test_batches_with_malformed_headers_are_refused(settings: ServerSettings) -> None:
    """A shuffler that is trusted with another experiment."""
    app, key = create_app(settings), Ed25519PrivateKey.generate()
    (folder,) = settings.shuffler_keys
    folder.mkdir()
    (folder / "one.pub").write_text(public_hex(key))
    async with serving(app) as client:
        api, intake = Api(client), intake_of(app)
        await api.create({**SHUFFLED, "experiment.name": "shuffled"})
        await api.create(SMALL)
        published, shuffled = await api.publication(), await api.publication("shuffled")
        (whole,) = sealed_reports(shuffled, 1)

        async def deliver(body: bytes) -> httpx.Response:
            return await client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})

        async with intake._write_lock:
            tasks = [asyncio.create_task(deliver(each)) for each in bad_envelopes(header_for(shuffled), whole)]
            body_of_report = body_of(published, sealed_reports(published, 1))
            honest = asyncio.create_task(client.post("/reports", content=body_of_report, auth=httpx.Auth()))
            await asyncio.sleep(0.3)
        assert (await honest).status_code == 202
        answers = await asyncio.gather(*tasks)
        assert {answer.status_code for answer in answers} <= {400, 403, 404, 409, 410}, [each.text for each in answers]


@pytest.mark.parametrize("page", ["", "/policy", "/state", "/history", "/privacy", "/risk", "/answer", "/shuffler"])
async def test_pages_of_impossible_names_are_not_found(settings: ServerSettings, page: str) -> None:
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app.public)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as stranger:
            for name in ("a%00b", "%00", "x" * 10_000, "%ED%A0%80"):
                assert (await stranger.get(f"/experiments/{name}{page}")).status_code in (404, 405)
                for proof in ("proof", "inclusion"):
                    assert (await stranger.get(f"/log/{proof}?experiment={name}&version=1")).status_code == 404


# What is no text stays one line of JSON: Python's own complaint would have the stack on many lines.


NO_TEXT = b"data-\xff".decode("utf-8", "surrogateescape")
"""Python reads the name of a folder that is not in UTF-8 like this."""


def test_a_name_outside_unicode_is_logged_as_one_line_of_json() -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    handler.handle(logging.LogRecord("privateer", logging.WARNING, "", 0, "there is no folder %s", (NO_TEXT,), None))
    assert json.loads(lines.getvalue())["event"] == "there is no folder data-\\udcff"
    assert lines.getvalue().count("\n") == 1
