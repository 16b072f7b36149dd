"""Before the first upload a load run sees that a shuffler stands at its address; later it says what it waits for."""

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
from privateer_core.wire.envelope import header_of
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body
from privateer_lab.load import endpoints
from privateer_lab.load.endpoints import Backoff, ServerCounts
from privateer_lab.load.wire import Wire
from privateer_server.rounds.open_round import first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()
FACTS = b'{"experiment": "test", "version": 1, "model": "shuffle", "batch": 10, "open": true}'
COUNTS = ServerCounts("open", 20, People(40, 20, HeldReports(needed=10), not_asked=20))
SERVER = msgspec.json.encode({"name": "test", "batch": 10, **msgspec.to_builtins(COUNTS)})
PAGE = problem_body(NotFound("no such page", remedy="see the documentation"))
SMALL = problem_body(SpecError("rounds are too small\n\x1b[2J", field="privacy.min_batch", remedy="larger rounds"))


@asynccontextmanager
async def answering(
    facts: Callable[[], tuple[int, bytes]], decided: Callable[[], bool] = lambda: True
) -> AsyncIterator[str]:
    async def told(_: web.Request) -> web.Response:
        status, body = facts()
        return web.Response(status=status, body=body)

    async def report(_: web.Request) -> web.Response:
        if decided():
            return web.Response(status=202, body=b'{"accepted": 1, "refused": {}}')
        return web.Response(status=503, body=problem_body(Unavailable("the disk is full", remedy="give it room")))

    app = web.Application()
    app.router.add_get("/experiments/test", told)
    app.router.add_post("/experiments/test/reports", report)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url(""))


async def send(wire: Wire) -> tuple[int, dict[str, int]]:
    first = first_round(phased_spec(), KEY)
    async with asyncio.timeout(30):
        return await wire.send(header_of(first.round, first.digest), b"sealed", 1, "shuffler")


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
async def test_an_address_that_takes_no_reports_is_told_at_once(status: int, body: bytes, says: str) -> None:
    asked: list[int] = []
    async with (
        answering(lambda: (asked.append(1), (status, body))[1]) as where,
        Wire.open("test", where, where, 1) as wire,
    ):
        with pytest.raises(PrivateerError, match=f"^--shuffler: {says}"):
            await send(wire)
    assert len(asked) == 1


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE", 0.3)
    async with Wire.open("test", "http://127.0.0.1:1", "http://127.0.0.1:1", 1) as wire:
        with pytest.raises(
            Unavailable, match=r"^--shuffler: no answer from http://127\.0\.0\.1:1 \(is the shuffler running\?\)"
        ):
            await send(wire)


async def test_a_shuffler_that_starts_is_waited_for_and_asked_once() -> None:
    answers = [(503, problem_body(Unavailable("later"))), (502, b"<html>"), (200, FACTS)]
    async with answering(lambda: answers.pop(0)) as where, Wire.open("test", where, where, 1) as wire:
        assert await asyncio.gather(send(wire), send(wire)) == [(1, {}), (1, {})]
    assert answers == []


async def test_an_endpoint_that_does_not_decide_is_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return bool(said)

    monkeypatch.setattr(endpoints, "PATIENCE", 0.2)
    async with answering(lambda: (200, FACTS), told) as where, Wire.open("test", where, where, 1) as wire:
        assert await asyncio.gather(send(wire), send(wire)) == [(1, {}), (1, {})]
    said += capsys.readouterr().err
    assert (said.startswith("waiting for the shuffler: "), said.count("\n")) == (True, 1)


async def test_a_wait_is_explained_in_the_endpoints_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE", 0.0)
    waiting = endpoints.UploadWait("shuffler")
    waiting.note(503, problem_body(Unavailable("the disk is full", remedy="give it\nroom")))
    with waiting.limited():
        await asyncio.sleep(0.05)
    assert capsys.readouterr().err == "waiting for the shuffler: the disk is full (give it?room)\n"


async def test_a_service_that_died_after_it_accepted_reports_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with answering(lambda: (200, FACTS)) as where:
        wire_of = Wire.open("test", where, where, 1)
        wire = await wire_of.__aenter__()
        assert await send(wire) == (1, {})
    monkeypatch.setattr(endpoints, "PATIENCE", 0.2)
    monkeypatch.setattr("privateer_lab.load.wire.TRIES", 4)
    assert await send(wire) == (0, {"pending": 1})
    await wire_of.__aexit__(None, None, None)
    assert capsys.readouterr().err == "waiting for the shuffler: no answer (is the shuffler running?)\n"


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (202, b'{"accepted": 6, "refused": {"unavailable": 4}}', "it did not take all reports yet (unavailable)"),
        (202, b"<html>", "its answer, HTTP 202, decides nothing (is something else at its address?)"),
    ],
)
def test_an_answer_without_a_decision_is_put_in_words(status: int, body: bytes, says: str) -> None:
    waiting = endpoints.UploadWait("shuffler")
    waiting.note(status, body)
    assert waiting.why == says


@pytest.mark.parametrize(
    ("status", "body", "counted"), [(200, SERVER, COUNTS), (200, b"<html>", None), (503, PAGE, None)]
)
async def test_what_the_server_has_counted_is_its_own_word(
    status: int, body: bytes, counted: ServerCounts | None
) -> None:
    async with answering(lambda: (status, body)) as where, aiohttp.ClientSession() as http:
        assert await endpoints.counts_of(http, where, "test") == counted
        nowhere = await endpoints.counts_of(http, "http://127.0.0.1:1", "test")
    assert nowhere is None


async def test_answers_are_read_to_a_bound() -> None:
    body = b'{"experiment": "test", "batch": 1, "x": "' + b"x" * (1 << 20) + b'"}'
    async with answering(lambda: (200, body)) as where, aiohttp.ClientSession() as http:
        with pytest.raises(NotFound, match="this is not a shuffler"):
            await endpoints.meet(http, where, "test", Backoff())


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_wrong_clock_is_not_a_key_that_nobody_trusts(seconds: int) -> None:
    key, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    known = {signing_key_id(one.public_key()): one.public_key() for one in ((key,) if seconds else (stranger,))}

    async def refuse(request: web.Request) -> web.Response:
        try:
            UPLOAD.check(request.headers[UPLOAD.header], known, time.time() + seconds)
        except SenderRefused as error:
            return web.Response(status=error.status, body=problem_body(error))
        return web.Response(status=500)

    app = web.Application()
    app.router.add_post("/reports", refuse)
    first = first_round(phased_spec(), KEY)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url(""))
        async with Wire.open("test", url, None, 1, key) as wire:
            with pytest.raises(SenderRefused) as refused:
                await wire.send(header_of(first.round, first.digest), b"sealed" * 2, 2, "server")
    says = "this machine's clock and the service's differ" if seconds else "the services do not trust this key"
    assert refused.value.detail.startswith(says)
