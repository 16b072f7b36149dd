"""A load run waits as long as services ask for with ``Retry-After``, counts that, and goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.errors import Unavailable
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import report_header
from privateer_lab.load import command
from privateer_lab.load.endpoints import MAX_ATTEMPTS
from privateer_lab.load.wire import Wire
from privateer_lab.services.rest import ServiceBusy
from privateer_server.rounds.open_round import open_first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()
FIRST = open_first_round(phased_spec(), KEY)
BUSY = problem_body(Unavailable("the database does not answer", remedy="try again later"))


class Sleeps:
    """Notes pauses in the place of waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._honest = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        monkeypatch.setattr(time, "sleep", self.seconds.append)

    async def _sleep(self, seconds: float) -> None:
        self.seconds += [seconds] if seconds else []
        await self._honest(0)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    return Sleeps(monkeypatch)


def busy(seconds: str) -> web.Response:
    return web.Response(status=503, body=BUSY, headers={"Retry-After": seconds})


@asynccontextmanager
async def answering(**pages: list[web.Response]) -> AsyncIterator[Wire]:
    """Open a wire to services that return each page's responses in order."""
    paths = {"facts": "/experiments/test", "policy": "/experiments/test/policy", "reports": "/experiments/test/reports"}
    app = web.Application()

    def serve_in_order(answers: list[web.Response]) -> Any:
        async def answer(_: web.Request) -> web.Response:
            return answers.pop(0)

        return answer

    for name, answers in pages.items():
        app.router.add_route("*", paths[name], serve_in_order(answers))
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url(""))
        async with Wire.open("test", url, url, 1) as wire:
            yield wire
    assert not any(pages.values())


async def test_every_question_waits_as_long_as_it_is_asked_to(sleeps: Sleeps) -> None:
    facts = [busy("7"), busy("3"), web.json_response({"experiment": "test", "batch_size": 10})]
    reports = [busy("5"), busy("4000"), web.json_response({"accepted": 2, "refused": {}}, status=202)]
    policy = [busy("2"), web.Response(body=FIRST.publication)]
    async with answering(facts=facts, reports=reports, policy=policy) as wire:
        assert await wire.fetch(None) is None
        assert await wire.fetch(None) == FIRST.publication
        assert await wire.send(report_header(FIRST.round, FIRST.digest), b"sealed", 2, "shuffler") == (2, {})
        assert sleeps.seconds == [2, 7, 3, 5, 30]
        assert (wire.backoff.waits, wire.backoff.seconds) == (5, 47)


async def test_an_endpoint_that_never_decides_is_given_up(sleeps: Sleeps) -> None:
    facts = [web.json_response({"experiment": "test", "batch_size": 10})]
    async with answering(facts=facts, reports=[busy("1") for _ in range(MAX_ATTEMPTS)]) as wire:
        refused = await wire.send(report_header(FIRST.round, FIRST.digest), b"sealed", 2, "shuffler")
    assert refused == (0, {"pending": 2})
    assert len(sleeps.seconds) == MAX_ATTEMPTS


def test_a_server_that_is_busy_when_the_run_begins_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sleeps: Sleeps
) -> None:
    spec = msgspec.json.decode(FIRST.schedule.encoded_spec)
    later = httpx.Response(503, content=BUSY, headers={"Retry-After": "3"})
    answers = [later, later, httpx.Response(502, content=b"<html>"), httpx.Response(200, json={"spec": spec})]
    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", lambda *_, **__: answers.pop(0))
    options = command._make_parser().parse_args(["test"])
    assert command._fetch_spec(options).name == "test"
    assert sleeps.seconds == [3, 3, 0.2]
    assert capsys.readouterr().err == "waiting for the server: the database does not answer\n"


def test_a_server_that_stays_busy_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch, sleeps: Sleeps) -> None:
    later = httpx.Response(503, content=BUSY, headers={"Retry-After": "1"})
    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", lambda *_, **__: later)
    with pytest.raises(ServiceBusy, match="the database does not answer"):
        command._fetch_spec(command._make_parser().parse_args(["test"]))
    assert len(sleeps.seconds) == MAX_ATTEMPTS - 1
