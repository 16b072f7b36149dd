"""A load run polls seldom, waits as long as services ask for, and counts each response."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client.delivery import EndpointAnswer
from privateer_core.errors import RoundClosed, Unavailable
from privateer_core.wire.problem import problem_body, problem_type
from privateer_core.wire.publication import report_header
from privateer_lab.load import command, driver
from privateer_lab.load.driver import LoadResult
from privateer_lab.load.endpoints import MAX_ATTEMPTS, Backoff
from privateer_lab.load.wire import UploadCounts, Wire
from privateer_lab.services.rest import ServiceBusy
from privateer_server.rounds.open_round import open_first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()


@dataclass
class Away:
    """Services that accept a phase and then do not respond."""

    questions: int = 0
    bytes_sent: int = 0
    name: str = "test"
    is_paused: bool = False
    backoff: Backoff = field(default_factory=Backoff)

    async def fetch_publication(self, old: bytes | None) -> bytes | None:
        self.questions += 1
        await asyncio.sleep(0)
        return open_first_round(phased_spec(), KEY).publication if old is None else None

    async def counts(self) -> None:
        return None

    async def send(self, *report: Any) -> tuple[int, dict[str, int]]:
        return int(report[2]), {}


async def test_an_unreachable_server_is_requested_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_POLICY_TIMEOUT_SECONDS", 1.0)
    wire: Any = Away()
    result = await driver.Driver(wire, {"name": "linear"}, 0).run(None, 1, 10, lambda _: None)
    assert (result.over, result.accepted) == (False, 2)
    assert 2 <= wire.questions <= 7


async def test_reports_to_a_full_round_are_sent_again_until_accepted_or_closed() -> None:
    """Two responses to retry later, a partial acceptance, then the rest; then a round that has closed."""
    full = problem_body(Unavailable("the round is full", remedy="send the same bytes again later"))
    closed = problem_body(RoundClosed("closed"), refused={"round-closed": 5})
    answers = [
        (503, full),
        (429, b""),
        (202, b'{"accepted": 3, "refused": {"unavailable": 2}}'),
        (202, b'{"accepted": 2, "refused": {"duplicate-report": 3}}'),
        (503, full),
        (409, closed),
    ]
    bodies: list[bytes] = []

    async def endpoint(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        status, body = answers.pop(0)
        return web.Response(status=status, body=body)

    async def facts(_: web.Request) -> web.Response:
        return web.json_response({"experiment": "test", "batch_size": 10})

    app = web.Application()
    app.router.add_get("/experiments/test", facts)
    app.router.add_post("/experiments/test/reports", endpoint)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url(""))
        first = open_first_round(phased_spec(), KEY)
        header = report_header(first.round, first.digest)
        async with Wire.open("test", url, url, 1, None) as wire:
            assert await wire.send(header, b"sealed", 5, "shuffler") == (5, {})
            assert len(set(bodies)) == 1 < len(bodies)
            assert await wire.send(header, b"others", 5, "shuffler") == (0, {"round-closed": 5})
    assert answers == []


async def test_a_policy_fetched_in_a_pause_requests_no_report() -> None:
    wire: Any = Away(is_paused=True)
    result = await driver.Driver(wire, {"name": "linear"}, 0)._fetch_next(None)
    assert not result.is_report_requested


FIRST = open_first_round(phased_spec(), KEY)
BUSY = problem_body(Unavailable("the database does not answer", remedy="try again later"))


class Sleeps:
    """The pauses of a test's own thread, noted in the place of waiting; other threads wait as they asked to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._thread = threading.get_ident()
        self._honest, self._honest_wait = asyncio.sleep, time.sleep
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        monkeypatch.setattr(time, "sleep", self._wait)

    @property
    def _is_own(self) -> bool:
        return threading.get_ident() == self._thread

    async def _sleep(self, seconds: float, result: Any = None) -> Any:
        if self._is_own and seconds:
            self.seconds.append(seconds)
        return await self._honest(0 if self._is_own else seconds, result)

    def _wait(self, seconds: float) -> None:
        if self._is_own:
            self.seconds.append(seconds)
        else:
            self._honest_wait(seconds)


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
        assert await wire.fetch_publication(None) is None
        assert await wire.fetch_publication(None) == FIRST.publication
        assert await wire.send(report_header(FIRST.round, FIRST.digest), b"sealed", 2, "shuffler") == (2, {})
        assert sleeps.seconds == [2, 7, 3, 5, 30]
        assert (wire.backoff.waits, wire.backoff.seconds) == (5, 47)


async def test_an_endpoint_that_never_decides_is_given_up(sleeps: Sleeps) -> None:
    facts = [web.json_response({"experiment": "test", "batch_size": 10})]
    async with answering(facts=facts, reports=[busy("1") for _ in range(MAX_ATTEMPTS)]) as wire:
        refused = await wire.send(report_header(FIRST.round, FIRST.digest), b"sealed", 2, "shuffler")
    assert refused == (0, {"pending": 2})
    assert len(sleeps.seconds) == MAX_ATTEMPTS


def test_pauses_of_other_threads_are_not_noted(sleeps: Sleeps) -> None:
    """A thread of another test once counted as 546 pauses of a load run."""
    waits = [lambda: time.sleep(0.01), lambda: asyncio.run(asyncio.sleep(0.01))]
    started = time.perf_counter()
    for wait in waits:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert sleeps.seconds == []
    assert time.perf_counter() - started >= 0.02


def test_a_server_that_is_busy_when_the_run_begins_is_asked_again(monkeypatch, capsys, sleeps):
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


def make_answer(status: int, slug: str = "", **members: object) -> EndpointAnswer:
    return EndpointAnswer(status, msgspec.json.encode({"type": problem_type(slug)} | members))


def count_answers(*answers: EndpointAnswer) -> tuple[int, dict[str, int], bool]:
    counts = UploadCounts(10)
    for number, answer in enumerate(answers):
        counts.update(answer, number > 0)
    return counts.accepted, counts.refused, counts.is_pending


SOME = EndpointAnswer(202, b'{"accepted": 6, "refused": {"unavailable": 4}}')


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ([], (0, {"pending": 10}, True)),
        ([EndpointAnswer(202, b'{"accepted": 10, "refused": {}}')], (10, {}, False)),
        ([EndpointAnswer(202, b"<html>")], (0, {"pending": 10}, True)),
        ([EndpointAnswer(202, b'{"accepted": "many"}')], (0, {"pending": 10}, True)),
        ([make_answer(409, "round-closed")], (0, {"round-closed": 10}, False)),
        ([make_answer(503, "unavailable", refused={"unavailable": 10})], (0, {"pending": 10}, True)),
        ([make_answer(409, "round-closed", refused={"round-closed": 4, "duplicate-report": 6})],
         (0, {"round-closed": 4, "duplicate-report": 6}, False)),
        ([EndpointAnswer(500), make_answer(409, "round-closed", refused={"round-closed": 4, "duplicate-report": 6})],
         (6, {"round-closed": 4}, False)),
        ([EndpointAnswer(500), make_answer(409, "duplicate-report")], (10, {}, False)),
        ([SOME], (6, {"unavailable": 4}, True)),
        ([SOME, EndpointAnswer(202, b'{"accepted": 4, "refused": {"duplicate-report": 6}}')], (10, {}, False)),
        ([SOME, make_answer(503, "unavailable")], (6, {"pending": 4}, True)),
        ([SOME, make_answer(409, "round-closed", refused={"round-closed": 10})], (6, {"round-closed": 4}, False)),
    ],
)  # fmt: skip
def test_people_of_an_upload_are_all_counted_once(answers, counted):
    assert count_answers(*answers) == counted
    assert counted[0] + sum(counted[1].values()) == 10


def test_people_without_invitation_do_not_count() -> None:
    """Planted: 10,000 people for an experiment of 5,700, of whom 4,300 only choose."""
    figures = LoadResult(people=10_000, not_asked=4300, accepted=5700).as_dict()
    assert (figures["took_part"], figures["not_asked"], figures["refused"]) == (5700, 4300, {})
