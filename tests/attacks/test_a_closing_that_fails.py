"""The disk fails between the two writes that close a round: late reports, and restarts, meet a round that has ended."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence

import pytest

from privateer_server.app import create_app
from privateer_server.rounds.closing import Closer
from privateer_server.settings import ServerSettings
from privateer_server.store.records import RoundUpdate
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.phased import tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, PHASED, SMALL, Api, assert_problem

FAILING = {"asking.seconds": 60, "asking.when_short": "fail"}
Fails = Callable[[int], Callable[[], bool]]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Have the disk fail so many times when it should take another round; returned is whether it has."""
    commit, left = Store.commit, 0

    def have(times: int) -> Callable[[], bool]:
        nonlocal left
        left = times
        return lambda: not left

    def full(self: Store, changes: Sequence[RoundUpdate]) -> None:
        nonlocal left
        if left and any(change.following for change in changes):
            left -= 1
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, changes)

    monkeypatch.setattr(Store, "commit", full)
    return have


async def test_a_report_after_the_end_does_not_stop_the_server(
    settings: ServerSettings, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase is given up, and its end is on record, but not in the database: the next report comes too late."""
    monkeypatch.setattr("privateer_server.rounds.deadlines._LOOK_SECONDS", 0.005)
    clock = Hands()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await client.post("/experiments", json=tables({**PHASED, **FAILING}, "central"), headers=ADMIN)
        first = await api.publication()
        people = sealed_reports(first, 10)
        assert (await client.post("/reports", content=body_of(first, people[:2]))).json()["accepted"] == 2
        has_failed = fails(1)
        async with asyncio.timeout(20):
            while not has_failed():
                clock.time += 400
                await asyncio.sleep(0.1)
        for person in people[2:]:
            assert_problem(await client.post("/reports", content=body_of(first, [person])), 409, "round-closed")
            clock.time += 400
            await asyncio.sleep(0.05)
        async with asyncio.timeout(20):
            while (facts := await api.facts())["status"] == "open":
                await asyncio.sleep(0.01)
        assert facts | {"status": "failed", "accepted": 2} == facts
        assert (await client.get("/readyz")).status_code == 200


async def test_the_key_of_a_round_on_record_outlives_a_start(
    settings: ServerSettings, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server learns again at its start and the disk fails: what it then publishes must open after the next start."""
    with monkeypatch.context() as dying:
        dying.setattr(Closer, "close", lambda *_: 1 / 0)
        async with serving(create_app(settings)) as client:
            api = Api(client)
            await api.create(SMALL)
            first = await api.publication()
            sent = await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            assert sent.json()["accepted"] == 20
    fails(1)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        async with asyncio.timeout(20):
            while (await api.facts())["version"] == 1:
                await asyncio.sleep(0.05)
        second = await api.publication()
        sent = await client.post("/reports", content=body_of(second, sealed_reports(second, 10)))
        assert sent.json()["accepted"] == 10
    async with serving(create_app(settings)) as client:
        facts = await Api(client).facts()
        assert facts | {"version": 2, "received": 10, "accepted": 30} == facts
