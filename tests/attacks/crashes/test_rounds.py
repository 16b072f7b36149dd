"""The server dies, its disk fails or its clock is set while a round closes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.background_checks import Deadlines
from privateer_server.rounds.closing import RoundCloser
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.records import RoundUpdate
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.crashes import snapshot_at
from tests.support.phased import tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, PHASED, SMALL, TOKEN, Api, assert_problem
from tests.unit.shuffler.helpers import until

# The server dies while it closes a round: nothing acknowledged is lost, no second noise is drawn, no key stays.


PEOPLE = 20
CENTRAL = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.round_size": PEOPLE,
    "experiment.horizon": 1000,
}
BEFORE_THE_DRAW = [
    (RoundKeys, "create_key", False),
    (RoundKeys, "create_key", True),
    (Journal, "record_publication", False),
]
AFTER_THE_DRAW = [(Journal, "record_publication", True), (RoundKeys, "destroy", False), (RoundKeys, "destroy", True)]


@asynccontextmanager
async def serving_api(data: Path) -> AsyncIterator[Api]:
    async with serving(create_app(ServerSettings(data=data, admin_token=TOKEN, sender_keys=TRUSTED))) as client:
        yield Api(client)


async def close_round_with_snapshot(
    settings: ServerSettings, copy: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> tuple[bytes, bytes]:
    """Publications of the first and the second round of a server; what it had on disk at a moment is in the copy."""
    async with serving_api(settings.data) as api:
        await api.create(CENTRAL)
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE)
        response = await api.client.post("/reports", content=body_of(first, sealed[:12]))
        assert response.json()["accepted"] == 12
        with monkeypatch.context() as patched:
            owner, method, after = moment
            happened = snapshot_at(patched, owner, method, settings.data, copy, after=after)
            response = await api.client.post("/reports", content=body_of(first, sealed[12:]))
        assert happened()
        assert response.json()["accepted"] == PEOPLE - 12
        return first, await api.publication()


def keys_of(data: Path) -> set[str]:
    return {path.stem for path in (data / "keys").iterdir()}


async def open_keys(api: Api) -> set[str]:
    return {key["public_key"] for key in (await api.client.get("/keys")).json()["keys"]}


@pytest.mark.parametrize("moment", [*BEFORE_THE_DRAW, *AFTER_THE_DRAW])
async def test_acknowledged_reports_count_after_a_restart(settings, tmp_path, monkeypatch, moment):
    copy = tmp_path / "copy"
    first, _ = await close_round_with_snapshot(settings, copy, monkeypatch, moment)
    async with serving_api(copy) as api:
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE, "received": 0} == facts
        rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert (rounds[0]["received"], rounds[0]["released"]) == (PEOPLE, True)
        assert keys_of(copy) == await open_keys(api)
        assert first not in (await api.publication(),)


@pytest.mark.parametrize("moment", AFTER_THE_DRAW)
async def test_noise_on_record_is_not_drawn_again(settings, tmp_path, monkeypatch, moment):
    copy = tmp_path / "copy"
    _, second = await close_round_with_snapshot(settings, copy, monkeypatch, moment)
    async with serving_api(copy) as api:
        assert await api.publication() == second


@pytest.mark.parametrize("moment", BEFORE_THE_DRAW)
async def test_a_crash_before_the_release_opens_the_round_under_a_new_key(settings, tmp_path, monkeypatch, moment):
    copy = tmp_path / "copy"
    await close_round_with_snapshot(settings, copy, monkeypatch, moment)
    copied_keys = keys_of(copy)
    async with serving_api(copy) as api:
        assert not copied_keys & await open_keys(api)


@pytest.mark.parametrize("method", [(RoundKeys, "create_key"), (Journal, "record_publication"), (Store, "create")])
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_during_creation_leaves_no_unused_key(settings, tmp_path, monkeypatch, method, after):
    copy = tmp_path / "copy"
    async with serving_api(settings.data) as api:
        with monkeypatch.context() as patched:
            happened = snapshot_at(patched, method[0], method[1], settings.data, copy, after=after)
            await api.create(CENTRAL)
        assert happened()
        published = await api.publication()
    async with serving_api(copy) as api:
        assert keys_of(copy) == await open_keys(api)
        created = await api.create(CENTRAL)
        if method[0] is Store and after:
            assert (created.status_code, await api.publication()) == (200, published)
        else:
            assert created.status_code == 201
        first = await api.publication()
        response = await api.client.post("/reports", content=body_of(first, sealed_reports(first, PEOPLE)))
        assert response.json()["accepted"] == PEOPLE


# The disk fails between the two writes that close a round: late reports, and restarts, meet a round that has ended.


FAILING = {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0}
Fails = Callable[[int], Callable[[], bool]]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Make the disk fail a number of times when a round is stored; the returned function tells whether it has."""
    commit, n_remaining = Store.commit, 0

    def fail_times(times: int) -> Callable[[], bool]:
        nonlocal n_remaining
        n_remaining = times
        return lambda: not n_remaining

    def commit_or_fail(self: Store, changes: Sequence[RoundUpdate]) -> None:
        nonlocal n_remaining
        if n_remaining and any(change.following for change in changes):
            n_remaining -= 1
            raise sqlite3.OperationalError("database or disk is full")
        commit(self, changes)

    monkeypatch.setattr(Store, "commit", commit_or_fail)
    return fail_times


async def test_a_report_after_the_end_does_not_stop_the_server(settings, fails, monkeypatch):
    """A phase is given up, and its end is on record, but not in the database: the next report comes too late."""
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.005)
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


async def test_the_key_of_a_round_on_record_survives_a_start(settings, fails, monkeypatch):
    """A server learns again at its start and the disk fails: what it then publishes must open after the next start."""
    with monkeypatch.context() as dying:
        dying.setattr(RoundCloser, "close_round", lambda *_: 1 / 0)
        async with serving(create_app(settings)) as client:
            api = Api(client)
            await api.create(SMALL)
            first = await api.publication()
            response = await client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            assert response.json()["accepted"] == 20
    fails(1)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        async with asyncio.timeout(20):
            while (await api.facts())["version"] == 1:
                await asyncio.sleep(0.05)
        second = await api.publication()
        response = await client.post("/reports", content=body_of(second, sealed_reports(second, 10)))
        assert response.json()["accepted"] == 10
    async with serving(create_app(settings)) as client:
        facts = await Api(client).facts()
        assert facts | {"version": 2, "received": 10, "accepted": 30} == facts


# Somebody sets the server's clock by a day, forwards or backwards: no phase fails, closes early or stays open.


DAY = 86_400
REDUCED = {"recruitment.timeout_seconds": 600, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.5}
Serving = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each check of the deadlines while no round is being closed."""
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.005)
    checks: list[int] = []
    check_rounds = Deadlines.check_rounds

    def check_and_count(self: Deadlines) -> None:
        check_rounds(self)
        if not self._expiring:
            checks.append(1)

    monkeypatch.setattr(Deadlines, "check_rounds", check_and_count)
    return checks


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def serve(settings: ServerSettings, clock: Hands) -> Serving:
    @asynccontextmanager
    async def run_server() -> AsyncIterator[Api]:
        async with serving(create_app(settings, clock)) as client:
            yield Api(client)

    return run_server


async def create(api: Api) -> httpx.Response:
    return await api.client.post("/experiments", json=tables({**PHASED, **REDUCED}, "local"), headers=ADMIN)


async def report(api: Api, people: int) -> None:
    publication = await api.publication()
    await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, people)))


async def wait_for_checks(looks: list[int]) -> None:
    n_before = len(looks)
    await until(lambda: len(looks) > n_before + 5)


async def pass_time(clock: Hands, looks: list[int], seconds: int) -> None:
    """Advance the clock in ten steps, with a check of the deadlines after each."""
    for _ in range(10):
        clock.time += seconds / 10
        n_before = len(looks)
        await until(lambda: len(looks) > n_before + 1)  # noqa: B023 - awaited at once


@pytest.mark.parametrize("step", [DAY, -DAY])
@pytest.mark.parametrize("before", [True, False])
async def test_a_clock_step_neither_ends_nor_extends_a_phase(serve, clock, looks, step, before):
    """The step comes before or after enough people have reported for the phase to close at its deadline."""
    async with serve() as api:
        await create(api)
        min_reports = decode_publication(await api.publication()).round.least
        if not before:
            await report(api, min_reports)
        clock.step(step)
        await pass_time(clock, looks, 300)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        if before:
            await report(api, min_reports)
        await pass_time(clock, looks, 310)
        for _ in range(20):
            if (facts := await api.facts())["version"] > 1:
                break
            await wait_for_checks(looks)  # the next round is published some time after its deadline
        assert facts | {"version": 2, "status": "open", "accepted": min_reports} == facts


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_clock_set_right_after_a_restart_keeps_the_deadline(serve, clock, looks, step):
    async with serve() as api:
        await create(api)
        min_reports = decode_publication(await api.publication()).round.least
        await report(api, min_reports - 1)
        await pass_time(clock, looks, 100)
    clock.step(step)
    async with serve() as api:
        await pass_time(clock, looks, 50)
        clock.step(-step)
        await wait_for_checks(looks)
        await pass_time(clock, looks, 400)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        await report(api, min_reports)
        await pass_time(clock, looks, 60)
        facts = await api.facts()
        assert facts | {"version": 2, "status": "open"} == facts


async def test_a_phase_fails_only_some_time_after_its_deadline(serve: Serving, clock: Hands, looks: list[int]) -> None:
    async with serve() as api:
        await create(api)
        clock.time += 10_000  # a machine that slept
        await wait_for_checks(looks)
        clock.time += 59
        await wait_for_checks(looks)
        facts = await api.facts()
        assert facts | {"version": 1, "status": "open"} == facts
        clock.time += 1
        await asyncio.wait_for(wait_until_failed(api), 20)


async def wait_until_failed(api: Api) -> None:
    while (await api.facts())["status"] != "failed":
        await asyncio.sleep(0.01)
