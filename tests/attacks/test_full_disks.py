"""The disk fills up, at any step: nothing acknowledged is lost, and once there is room the server goes on by itself."""

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_server.store.round_keys import RoundKeys
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api, assert_problem
from tests.support.stores import driver
from tests.unit.shuffler.helpers import until

FULL = {
    RoundKeys: OSError(errno.ENOSPC, "No space left on device"),
    Journal: sqlite3.OperationalError("database or disk is full"),
    Store: sqlite3.OperationalError("database or disk is full"),
}


@asynccontextmanager
async def served(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr("privateer_server.rounds.deadlines._LOOK_SECONDS", 0.01)
    monkeypatch.setattr("privateer_server.experiments.experiment._RETRY_SECONDS", 0.01)
    async with serving(create_app(settings)) as client:
        yield Api(client)


def fills(patched: pytest.MonkeyPatch, owner: Any, method: str, *, calls_before: int = 0) -> list[int]:
    """Have a method find the disk full, from some call on; the list counts how often it did."""
    original, calls, failures = getattr(owner, method), [], []

    def full(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > calls_before:
            failures.append(1)
            raise FULL[owner]
        return original(*arguments)

    patched.setattr(owner, method, full)
    return failures


def kept(monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """Stores that are opened from now on."""
    stores: list[Store] = []
    opened = Store.__init__

    def noted(self: Store, *arguments: Any) -> None:
        opened(self, *arguments)
        stores.append(self)

    monkeypatch.setattr(Store, "__init__", noted)
    return stores


def limit(store: Store, pages: int) -> None:
    """Let a database grow to so many pages, or to what it has if that is more."""
    with driver(store) as db:
        db.execute(f"PRAGMA max_page_count = {pages}")


async def closed(api: Api, version: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (facts := await api.facts())["version"] != version:
            await asyncio.sleep(0.01)
    return facts


@pytest.mark.parametrize(
    ("owner", "method", "calls_before"), [(RoundKeys, "make", 0), (Journal, "write", 0), (Store, "commit", 1)]
)
async def test_a_round_whose_closing_finds_the_disk_full_closes_when_there_is_room(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, calls_before: int
) -> None:
    async with served(settings, monkeypatch) as api:
        await api.create(SMALL)
        first = await api.publication()
        with monkeypatch.context() as patched:
            failures = fills(patched, owner, method, calls_before=calls_before)
            sent = await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            assert (sent.status_code, sent.json()["accepted"]) == (202, 20)
            await until(lambda: len(failures) > 2)
            facts = await api.facts()
            assert facts | {"version": 1, "received": 20, "accepted": 20} == facts
        facts = await closed(api, 2)
        assert facts | {"received": 0, "accepted": 20} == facts
        rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert (rounds[0]["received"], rounds[0]["released"]) == (20, True)
        await until(lambda: len(list((settings.data / "keys").iterdir())) == 1)


async def test_noise_on_record_outlives_a_full_disk(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has the release and the database has no room for it: what is published then is that release."""
    async with served(settings, monkeypatch) as api:
        await api.create(SMALL | {"privacy.model": "central", "privacy.delta": 1e-6})
        first = await api.publication()
        with monkeypatch.context() as patched:
            failures = fills(patched, Store, "commit", calls_before=1)
            entered: list[Any] = []
            write = Journal.write

            def noted(journal: Journal, *entries: Any) -> Any:
                entered.append(entries[0])
                return write(journal, *entries)

            patched.setattr(Journal, "write", noted)
            await api.client.post("/reports", content=body_of(first, sealed_reports(first, 20)))
            await until(lambda: len(failures) > 2)
        await closed(api, 2)
        (entry,) = entered
        assert await api.publication() == entry.following.publication


async def test_reports_are_turned_away_while_there_is_no_room_and_counted_after(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A real limit on the database's pages. What was refused with 503 counts once when it is sent again."""
    stores = kept(monkeypatch)
    async with served(settings, monkeypatch) as api:
        await api.create({"experiment.round_size": 4000, "experiment.horizon": 8000})
        first = await api.publication()
        sealed = sealed_reports(first, 3000)
        bodies = [body_of(first, sealed[at : at + 100]) for at in range(0, 3000, 100)]
        with caplog.at_level(logging.WARNING):
            limit(stores[0], pages=1)
            answers = [await api.client.post("/reports", content=body) for body in bodies]
            refused = [body for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 503]
            assert refused
            assert_problem(next(answer for answer in answers if answer.status_code == 503), 503, "unavailable")
            accepted = sum(answer.json().get("accepted", 0) for answer in answers)
            assert (await api.facts())["accepted"] == accepted
            limit(stores[0], pages=1 << 20)
            for body in refused:
                assert (await api.client.post("/reports", content=body)).json()["accepted"] == 100
        assert (await api.facts())["accepted"] == 3000
        assert caplog.text.count("the data cannot be written") == 1
        assert caplog.text.count("the data can be written again") == 1
