"""A load run checks the shuffler's address before the first upload, and later names the service it waits for."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import NotFound, PrivateerError, SenderRefused, SpecError, Unavailable
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import report_header
from privateer_lab.load import endpoints
from privateer_lab.load.endpoints import Backoff, ServerCounts
from privateer_lab.load.wire import Wire
from privateer_server.rounds.open_round import open_first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()
FACTS = b'{"experiment": "test", "version": 1, "model": "shuffle", "batch_size": 10, "open": true}'
COUNTS = ServerCounts("open", 20, People(40, 20, HeldReports(needed=10), not_asked=20))
SERVER = msgspec.json.encode({"name": "test", "batch_size": 10, **msgspec.to_builtins(COUNTS)})
PAGE = problem_body(NotFound("no such page", remedy="see the documentation"))
SMALL = problem_body(SpecError("rounds are too small\n\x1b[2J", field="privacy.min_batch", remedy="larger rounds"))


@asynccontextmanager
async def answering(
    facts: Callable[[], tuple[int, bytes]], is_decided: Callable[[], bool] = lambda: True
) -> AsyncIterator[str]:
    async def serve_facts(_: web.Request) -> web.Response:
        status, body = facts()
        return web.Response(status=status, body=body)

    async def report(_: web.Request) -> web.Response:
        if is_decided():
            return web.Response(status=202, body=b'{"accepted": 1, "refused": {}}')
        return web.Response(status=503, body=problem_body(Unavailable("the disk is full", remedy="give it room")))

    app = web.Application()
    app.router.add_get("/experiments/test", serve_facts)
    app.router.add_post("/experiments/test/reports", report)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url(""))


async def send(wire: Wire) -> tuple[int, dict[str, int]]:
    first = open_first_round(phased_spec(), KEY)
    async with asyncio.timeout(30):
        return await wire.send(report_header(first.round, first.digest), b"sealed", 1, "shuffler")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, SERVER, "this is not a shuffler"),
        (200, b"<html>", "this is not a shuffler"),
        (404, b"<html>", "this is not a shuffler"),
        (404, PAGE, "this is not a shuffler"),
        (422, SMALL, r"rounds are too small\?\?\[2J \(larger rounds\)"),
    ],
)
async def test_an_address_that_takes_no_reports_is_an_error_at_once(status: int, body: bytes, says: str) -> None:
    requests: list[int] = []
    async with (
        answering(lambda: (requests.append(1), (status, body))[1]) as url,
        Wire.open("test", url, url, 1) as wire,
    ):
        with pytest.raises(PrivateerError, match=f"^--shuffler: {says}"):
            await send(wire)
    assert len(requests) == 1


async def test_an_unreachable_endpoint_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "STARTUP_SECONDS", 0.3)
    async with Wire.open("test", "http://127.0.0.1:1", "http://127.0.0.1:1", 1) as wire:
        with pytest.raises(
            Unavailable, match=r"^--shuffler: no answer from http://127\.0\.0\.1:1 \(is the shuffler running\?\)"
        ):
            await send(wire)


async def test_a_shuffler_that_starts_is_waited_for_and_asked_once() -> None:
    answers = [(503, problem_body(Unavailable("later"))), (502, b"<html>"), (200, FACTS)]
    async with answering(lambda: answers.pop(0)) as url, Wire.open("test", url, url, 1) as wire:
        assert await asyncio.gather(send(wire), send(wire)) == [(1, {}), (1, {})]
    assert answers == []


async def test_an_endpoint_that_does_not_decide_is_named_once(monkeypatch, capsys):
    messages = ""

    def serve_facts() -> bool:
        nonlocal messages
        messages += capsys.readouterr().err
        return bool(messages)

    monkeypatch.setattr(endpoints, "STARTUP_SECONDS", 0.2)
    async with answering(lambda: (200, FACTS), serve_facts) as url, Wire.open("test", url, url, 1) as wire:
        assert await asyncio.gather(send(wire), send(wire)) == [(1, {}), (1, {})]
    messages += capsys.readouterr().err
    assert (messages.startswith("waiting for the shuffler: "), messages.count("\n")) == (True, 1)


async def test_a_service_that_died_after_it_accepted_reports_gives_no_answer(monkeypatch, capsys):
    async with answering(lambda: (200, FACTS)) as url:
        wire_of = Wire.open("test", url, url, 1)
        wire = await wire_of.__aenter__()
        assert await send(wire) == (1, {})
    monkeypatch.setattr(endpoints, "STARTUP_SECONDS", 0.2)
    monkeypatch.setattr("privateer_lab.load.endpoints.MAX_ATTEMPTS", 4)
    assert await send(wire) == (0, {"pending": 1})
    await wire_of.__aexit__(None, None, None)
    assert capsys.readouterr().err == "waiting for the shuffler: no answer (is the shuffler running?)\n"


@pytest.mark.parametrize(
    ("status", "body", "counted"), [(200, SERVER, COUNTS), (200, b"<html>", None), (503, PAGE, None)]
)
async def test_counts_are_read_from_the_server(status: int, body: bytes, counted: ServerCounts | None) -> None:
    async with answering(lambda: (status, body)) as url, aiohttp.ClientSession() as http:
        assert await endpoints.fetch_counts(http, url, "test") == counted
        nowhere = await endpoints.fetch_counts(http, "http://127.0.0.1:1", "test")
    assert nowhere is None


async def test_responses_are_read_to_a_maximal_size() -> None:
    body = b'{"experiment": "test", "batch_size": 1, "x": "' + b"x" * (1 << 20) + b'"}'
    async with answering(lambda: (200, body)) as url, aiohttp.ClientSession() as http:
        with pytest.raises(NotFound, match="this is not a shuffler"):
            await endpoints.wait_for_shuffler(http, url, "test", Backoff())


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_wrong_clock_is_not_reported_as_an_untrusted_key(seconds: int) -> None:
    key, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = {signing_key_id(k.public_key()): k.public_key() for k in ((key,) if seconds else (stranger,))}

    async def refuse(request: web.Request) -> web.Response:
        try:
            UPLOAD.verify(request.headers[UPLOAD.header], trusted, time.time() + seconds)
        except SenderRefused as error:
            return web.Response(status=error.status, body=problem_body(error))
        return web.Response(status=500)

    app = web.Application()
    app.router.add_post("/reports", refuse)
    first = open_first_round(phased_spec(), KEY)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url(""))
        async with Wire.open("test", url, None, 1, key) as wire:
            with pytest.raises(SenderRefused) as refused:
                await wire.send(report_header(first.round, first.digest), b"sealed" * 2, 2, "server")
    says = "this machine's clock and the service's differ" if seconds else "the services do not trust this key"
    assert refused.value.detail.startswith(says)
