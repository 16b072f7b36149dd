"""A collector of traces or an issuer that answers with no HTTP at all harms neither the server nor its log."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from privateer_core.serving.token_gate import TokenKeys
from privateer_core.wire.token_keys import Directory
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support import issuing
from tests.support.asgi import serving
from tests.support.servers import SMALL, TOKEN, Api

ANSWERS = {
    "no status": b"Privateer!\r\n\r\n",
    "status in words": b"HTTP/1.1 fine OK\r\n\r\n",
    "endless line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    "less than announced": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "chunks that are none": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
}


@contextmanager
def answering(*said: bytes) -> Iterator[tuple[str, threading.Event]]:
    """The address of a peer that says one after the other, and the last to all others; and whether somebody came."""
    came, left = threading.Event(), list(said)

    def answer(listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(1 << 16)
                came.set()
                peer.sendall(left.pop(0) if len(left) > 1 else left[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
async def test_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr("privateer_server.traces._SECONDS", 0.05)
    with answering(said) as (url, came):
        settings = ServerSettings(data=tmp_path, admin_token=TOKEN, traces=url)
        async with serving(create_app(settings)) as client:
            assert (await Api(client).create(SMALL)).status_code == 201
            assert await asyncio.to_thread(came.wait, 10)
            await asyncio.sleep(0.2)
            assert (await client.get("/readyz")).status_code == 200
            assert (
                await client.post("/experiments/test/pause", headers={"authorization": f"Bearer {TOKEN}"})
            ).is_success
        # The folder is free again: the last spans kept nothing from being closed.
    async with serving(create_app(ServerSettings(data=tmp_path, admin_token=TOKEN))) as client:
        assert (await Api(client).facts())["status"] == "paused"


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
def test_an_issuer(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    escaped = list[object]()
    monkeypatch.setattr(threading, "excepthook", escaped.append)
    with answering(said) as (url, _):
        keys = TokenKeys(url)
        assert keys.all() == {}
        for thread in [one for one in threading.enumerate() if one.name == "token keys"]:
            thread.join(10)
        assert keys.all() == {}
    assert not escaped
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned in ([f"{url} cannot be read"], [f"{url} shows no token keys"])


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_cut_off_takes_no_keys_back(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    page = Directory.of(issuing.ISSUER, {"spring": [issuing.key()]}).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page
    with answering(whole, said) as (url, _):
        keys = TokenKeys(url)
        for _ in range(3):
            keys._looked = -1e9
            keys.all()
            for thread in [one for one in threading.enumerate() if one.name == "token keys"]:
                thread.join(10)
        assert list(keys.all()) == ["spring"]
