"""An endpoint that is away, or behind something that answers for it, loses no report that was paid for."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from privateer_client import AsyncClient, Client, Ledger, ReportStatus
from privateer_core.errors import NotFound, RoundClosed, Unavailable, WrongDigest
from privateer_core.wire.problem import problem_body
from tests.support.devices import Drawn, StillTime, still
from tests.support.notary import notarized
from tests.support.phased import LIMITS, small_spec
from tests.support.publications import published, shuffle_spec
from tests.support.specs import make_spec

CONTEXT = {"x1": 0.3, "x2": 0.9}
DOWN = httpx.ConnectError("down")


class Endpoint:
    """A server whose endpoint answers as a test sets it, and records the bodies and addresses of reports."""

    def __init__(self, answer: httpx.Response | Exception | None, body: bytes | None = None) -> None:
        self.answer = answer
        self.publication = body or published(make_spec())
        self.bodies: list[bytes] = []
        self.endpoints: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=self.publication)
        self.bodies.append(request.content)
        self.endpoints.add(str(request.url))
        if isinstance(self.answer, Exception):
            raise self.answer
        response = self.answer or httpx.Response(202, json={"accepted": 1, "refused": {}})
        return httpx.Response(response.status_code, headers=dict(response.headers), content=response.content)


def device(endpoint: Endpoint, folder: Path, shuffler: str | None = None) -> Client:
    """The application, started anew."""
    ledger = Ledger(folder / "ledger.db")
    return Client("http://s", shuffler=shuffler, ledger=ledger, transport=notarized(endpoint))


def report(endpoint: Endpoint, folder: Path, shuffler: str | None = None) -> ReportStatus:
    session = device(endpoint, folder, shuffler).join("test")
    session.choose(CONTEXT)
    return session.report(1.0)


async def report_async(endpoint: Endpoint, folder: Path) -> ReportStatus:
    transport = notarized(endpoint)
    async with AsyncClient("http://s", ledger=Ledger(folder / "ledger.db"), transport=transport) as client:
        session = await client.join("test")
        await session.choose(CONTEXT)
        return await session.report(1.0)


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[StillTime]:
    return still(monkeypatch)


def problem(error: Exception) -> httpx.Response:
    assert isinstance(error, Unavailable | RoundClosed | WrongDigest | NotFound)
    return httpx.Response(error.status, content=problem_body(error))


AWAY = {
    "nobody": DOWN,
    "silence": httpx.ReadTimeout("silence"),
    "broken off": httpx.RemoteProtocolError("broken off"),
    "full": problem(Unavailable("the round is full", remedy="send the same bytes again later")),
    "fault": httpx.Response(500, content=b"<html>"),
    "too many": httpx.Response(429),
    "early": httpx.Response(425),
    "a page that wants a password": httpx.Response(200, content=b"<html>log in</html>"),
    "a redirect": httpx.Response(302, headers={"location": "http://portal/"}),
    "a proxy": httpx.Response(403, content=b"<html>"),
    "a shuffler that knows no such experiment yet": problem(NotFound("none", remedy="check its spelling")),
}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
def test_a_report_waits_and_the_next_start_sends_the_same_bytes(tmp_path, away, kind):
    endpoint = Endpoint(away)
    outcome = report(endpoint, tmp_path) if kind == "sync" else asyncio.run(report_async(endpoint, tmp_path))
    assert outcome == "pending"
    tried = len(endpoint.bodies)
    endpoint.answer = None
    session = device(endpoint, tmp_path).join("test")
    assert len(endpoint.bodies) == tried + 1
    assert len(set(endpoint.bodies)) == 1
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.ALREADY_REPORTED
    device(endpoint, tmp_path).join("test")
    assert len(endpoint.bodies) == tried + 1
    assert len(Ledger(tmp_path / "ledger.db").payments()) == 1


def test_a_device_retries_until_its_timeout(tmp_path: Path, time: StillTime) -> None:
    """Ten seconds by default, where three tries once took 19 milliseconds."""
    began = time.now
    assert report(Endpoint(DOWN), tmp_path) == "pending"
    assert time.now - began == pytest.approx(10)
    assert len(time.pauses) >= 6


def test_an_endpoint_that_recovers_in_time_gets_the_report(tmp_path: Path, time: StillTime) -> None:
    began = time.now

    class Restarting(Endpoint):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            self.answer = DOWN if time.now < began + 2 else None
            return super().__call__(request)

    outcomes = []
    for person in range(20):
        began = time.now
        (tmp_path / str(person)).mkdir()
        outcomes.append(report(Restarting(None), tmp_path / str(person)))
    assert outcomes == [ReportStatus.ACCEPTED] * 20


def test_retry_after_is_honoured_within_the_timeout(tmp_path: Path, time: StillTime) -> None:
    busy = httpx.Response(503, headers={"retry-after": "3"})
    assert report(Endpoint(busy), tmp_path) == "pending"
    assert time.pauses
    assert all(pause >= 3 for pause in time.pauses)


@pytest.mark.parametrize("retry_after", ["999999999", "9" * 5000, "-1", "nan", "Wed, 21 Oct 2065 07:28:00 GMT", "3 s"])
def test_a_long_retry_after_does_not_hold_a_device(tmp_path: Path, time: StillTime, retry_after: str) -> None:
    began = time.now
    endpoint = Endpoint(httpx.Response(503, headers={"retry-after": retry_after}))
    assert report(endpoint, tmp_path) == "pending"
    assert time.now - began <= 10


def test_an_endpoint_that_hangs_delays_a_join_by_one_timeout(tmp_path: Path, time: StillTime) -> None:
    """Five reports wait; together they are tried no longer than one request may take."""
    timeouts: list[float] = []

    def hang(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            name = request.url.path.split("/")[2]
            return httpx.Response(200, content=published(make_spec({"experiment.name": name})))
        timeouts.append(request.extensions["timeout"]["read"])
        time.now += timeouts[-1]
        raise httpx.ReadTimeout("silence")

    ledger = Ledger(tmp_path / "ledger.db")
    client = Client("http://s", ledger=ledger, timeout=4.0, retry_timeout=0.0, transport=notarized(hang))
    for person in range(5):
        session = client.join(f"test-{person}")
        session.choose(CONTEXT)
        assert session.report(1.0) == "pending"
    began = time.now
    client.join("another")
    assert time.now - began <= 4.0
    assert client.flush() == {f"test-{person}": ReportStatus.PENDING for person in range(5)}


@pytest.mark.parametrize(
    ("final", "outcome"),
    [
        (problem(RoundClosed("closed")), ReportStatus.LATE),
        (problem(WrongDigest("another publication")), ReportStatus.REFUSED),
        (None, ReportStatus.ACCEPTED),
        (httpx.Response(409, content=b'{"type":"urn:privateer:problem:duplicate-report"}'), ReportStatus.ACCEPTED),
    ],
)
def test_a_report_with_a_final_answer_is_deleted(tmp_path, final, outcome):
    endpoint = Endpoint(DOWN)
    assert report(endpoint, tmp_path) == "pending"
    sealed = endpoint.bodies[0][-60:]
    assert sealed in (tmp_path / "ledger.db").read_bytes()
    endpoint.answer = final
    assert device(endpoint, tmp_path).flush() == {"test": outcome}
    assert device(endpoint, tmp_path).flush() == {}
    assert all(sealed not in file.read_bytes() for file in tmp_path.iterdir())


def test_a_report_goes_to_the_endpoint_it_was_made_for_and_to_no_other(tmp_path: Path) -> None:
    """Another shuffler, no shuffler or another server does not get the report, only the endpoint of the choice."""
    endpoint = Endpoint(DOWN, published(shuffle_spec()))
    assert report(endpoint, tmp_path, "http://first") == "pending"
    endpoint.answer = None
    assert device(endpoint, tmp_path, "http://second").flush() == {}
    assert device(endpoint, tmp_path).flush() == {}
    other = Ledger(tmp_path / "ledger.db")
    assert Client("http://t", shuffler="http://first", ledger=other, transport=notarized(endpoint)).flush() == {}
    assert device(endpoint, tmp_path, "http://first").flush() == {"test": ReportStatus.ACCEPTED}
    assert endpoint.endpoints == {"http://first/experiments/test/reports"}


def test_tries_and_pauses_do_not_depend_on_the_record(tmp_path, time, monkeypatch):
    transcripts = []
    for person, reward in enumerate((0.0, 1.0)):
        (tmp_path / str(person)).mkdir()
        monkeypatch.setattr("privateer_client.delivery._RANDOM.uniform", lambda low, high: high)
        endpoint, before = Endpoint(httpx.Response(503)), len(time.pauses)
        session = device(endpoint, tmp_path / str(person)).join("test")
        session.choose({"x1": reward, "x2": 1 - reward})
        assert session.report(reward) == "pending"
        transcripts.append((time.pauses[before:], [len(body) for body in endpoint.bodies]))
    assert transcripts[0] == transcripts[1]
    assert transcripts[0][0] == [0.25, 0.5, 1.0, 2.0, 4.0, 2.25]


async def test_async_clients_resend_too(tmp_path: Path) -> None:
    endpoint = Endpoint(DOWN)
    assert await report_async(endpoint, tmp_path) == "pending"
    tried, endpoint.answer = len(endpoint.bodies), None
    ledger, transport = Ledger(tmp_path / "ledger.db"), notarized(endpoint)
    async with AsyncClient("http://s", ledger=ledger, transport=transport) as client:
        assert await client.flush() == {"test": ReportStatus.ACCEPTED}
        assert await client.flush() == {}
    assert len(endpoint.bodies) == tried + 1
    assert len(set(endpoint.bodies)) == 1


def test_a_pending_report_of_vectors_is_sent_later(tmp_path: Path) -> None:
    """A long report, sent by a client that is started for the next round."""
    endpoint = Endpoint(DOWN, published(small_spec("shuffle")))

    def started() -> Client:
        ledger, transport = Drawn(tmp_path / "ledger.db", endpoint.publication, 0), notarized(endpoint)
        return Client("http://s", shuffler="http://m", limits=LIMITS, ledger=ledger, transport=transport)

    session = started().join("test")
    assert session.report(dict.fromkeys(session.choose(), 0.25)) == "pending"
    tried, endpoint.answer = len(endpoint.bodies), None
    assert not started().join("test").report_requested
    assert (len(endpoint.bodies), len(set(endpoint.bodies))) == (tried + 1, 1)
    assert started().flush() == {}
