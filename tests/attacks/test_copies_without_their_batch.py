"""An earlier copy of the database does not have the batch that its shuffler has delivered and erased.

Nobody brings another batch for the round, so it would stay open for good: a start gives it up, and nothing is released.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.rounds.closing import Closer
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from tests.support.asgi import serving
from tests.support.changes import changed
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import SHUFFLED, TOKEN, Api, assert_problem

PEOPLE = 100


@dataclass
class Place:
    """Where a server's data are: how it is started, and how its database is copied and put back without the journal."""

    served: Callable[[], AbstractAsyncContextManager[Api]]
    copy: Callable[[], None]
    put_back: Callable[[], None]


@pytest.fixture
def shuffler_key(tmp_path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "trusted").mkdir()
    (tmp_path / "trusted" / "one.pub").write_text(key.public_key().public_bytes_raw().hex() + "\n")
    return key


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return in_folder(tmp_path)
    return in_databases(request.getfixturevalue("postgres"), tmp_path)


def in_folder(base: Path) -> Place:
    data, kept = base / "data", base / "kept"

    @asynccontextmanager
    async def served() -> Any:
        settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=(base / "trusted",), sender_keys=TRUSTED)
        async with serving(create_app(settings)) as client:
            yield Api(client)

    def copy_to(source: Path, to: Path) -> None:
        for path in to.glob("server.db*"):
            path.unlink()
        to.mkdir(exist_ok=True)
        for path in source.glob("server.db*"):
            shutil.copy(path, to)

    return Place(served, lambda: copy_to(data, kept), lambda: copy_to(kept, data))


def in_databases(cluster: Cluster, base: Path) -> Place:
    shared = Shared.make(cluster, base)

    @asynccontextmanager
    async def served() -> Any:
        async with shared.served(1, base / "trusted") as (api,):
            yield api

    def put_back() -> None:
        cluster.drop(shared.database)
        cluster.load(base / "dump", cluster.make_again(shared.database))

    return Place(served, lambda: cluster.dump(shared.database, base / "dump"), put_back)


def batch(publication: bytes, opens: int = PEOPLE) -> bytes:
    """A batch of the round, of which so many reports open."""
    sealed = sealed_reports(publication, PEOPLE)
    return body_of(publication, sealed[:opens] + [bytes(len(one)) for one in sealed[opens:]])


async def deliver(api: Api, body: bytes, key: Ed25519PrivateKey) -> Any:
    return await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})


def unclosed(patched: pytest.MonkeyPatch) -> None:
    """No round is closed: the disk is full, or the learner has a defect."""

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    patched.setattr(Closer, "close", fail)


async def opened(api: Api) -> bytes:
    assert (await api.create(SHUFFLED)).status_code == 201
    return await api.publication()


async def test_a_round_whose_batch_is_gone_is_given_up(
    place: Place, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.served() as api:
        first = await opened(api)
    place.copy()
    with monkeypatch.context() as patched:
        unclosed(patched)
        async with place.served() as api:
            assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
            assert (await api.facts())["version"] == 1
    place.put_back()
    async with place.served() as api:
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "received": 0, "accepted": 0, "status": "open"} == facts
        assert (await api.client.get("/experiments/test/privacy")).json()["rounds"][0]["released"] is False
        assert_problem(await deliver(api, batch(first), shuffler_key), 409, "round-closed")
        assert (await deliver(api, batch(await api.publication()), shuffler_key)).json()["accepted"] == PEOPLE
        assert (await api.facts())["version"] == 1_000_002


async def test_a_database_that_has_the_batch_learns_from_it(
    place: Place, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        unclosed(patched)
        async with place.served() as api:
            first = await opened(api)
            body = batch(first)
            for status in (202, 200):
                assert (await deliver(api, body, shuffler_key)).status_code == status
    async with place.served() as api:
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE} == facts


async def test_a_round_that_waits_for_another_batch_goes_on(place: Place, shuffler_key: Ed25519PrivateKey) -> None:
    """The shuffler still takes reports for it: those of the first batch are lost, and no others."""
    async with place.served() as api:
        first = await opened(api)
    place.copy()
    async with place.served() as api:
        assert (await deliver(api, batch(first, opens=2), shuffler_key)).json()["closed"] is False
    place.put_back()
    async with place.served() as api:
        assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE} == facts


async def test_a_round_that_the_operator_ended_is_over_for_its_shuffler(
    place: Place, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy knows neither what the operator wanted nor that the shuffler was told."""
    async with place.served() as api:
        first = await opened(api)
    place.copy()
    with monkeypatch.context() as patched:
        unclosed(patched)
        async with place.served() as api:
            await changed(api, "pause", {"seconds": 0})
            async with asyncio.timeout(20):
                while "privateer_rounds_not_closed 1" not in (await api.client.get("/metrics")).text:
                    await asyncio.sleep(0.02)
            assert_problem(await deliver(api, batch(first), shuffler_key), 409, "round-closed")
    place.put_back()
    async with place.served() as api:
        assert (await api.facts())["version"] == 1_000_001


async def test_a_journal_that_cannot_be_written_keeps_the_batch_at_the_shuffler(
    tmp_path: Path, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    place = in_folder(tmp_path)
    async with place.served() as api:
        first = await opened(api)
        with monkeypatch.context() as patched:
            unclosed(patched)
            patched.setattr(Journal, "shut", full)
            body = batch(first)
            assert_problem(await deliver(api, body, shuffler_key), 503, "unavailable")
    async with place.served() as api:
        assert (await api.facts())["version"] == 2
        assert (await deliver(api, body, shuffler_key)).json()["accepted"] == PEOPLE


async def test_a_server_that_notes_nothing_is_caught(
    tmp_path: Path, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "shut", lambda *_: None)
    with pytest.raises(AssertionError, match="1000001"):
        await test_a_round_whose_batch_is_gone_is_given_up(in_folder(tmp_path), shuffler_key, monkeypatch)


async def test_an_operator_ends_a_round_where_the_journal_went_back_as_well(
    tmp_path: Path, shuffler_key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells such a round from one that is open."""
    place = in_folder(tmp_path)
    async with place.served() as api:
        first = await opened(api)
    shutil.copytree(tmp_path / "data", tmp_path / "all")
    with monkeypatch.context() as patched:
        unclosed(patched)
        async with place.served() as api:
            assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "all", tmp_path / "data")
    async with place.served() as api:
        assert await api.publication() == first
        await changed(api, "pause", {"seconds": 0})
        async with asyncio.timeout(20):
            while (await api.facts())["version"] == 1:
                await asyncio.sleep(0.02)
        await changed(api, "resume")
        assert (await api.client.get("/experiments/test/privacy")).json()["rounds"][0]["released"] is False
        assert (await deliver(api, batch(await api.publication()), shuffler_key)).json()["accepted"] == PEOPLE
