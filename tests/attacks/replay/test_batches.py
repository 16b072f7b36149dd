"""Batches that are delivered, erased and asked for again: the server has each report once."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.app import create_app
from privateer_server.app import create_app as create_server
from privateer_server.rounds.closing import RoundCloser
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.changes import make_change
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.server_and_shuffler import Pair
from tests.support.servers import ADMIN, SHUFFLED, TOKEN, Api, assert_problem

# An earlier copy of the database does not have the batch that its shuffler has delivered and erased.
#
# Nobody brings another batch for the round, so it would stay open for good: a start gives it up, and nothing is
# released.


PEOPLE = 100


@dataclass
class Place:
    """Where a server's data are: how it is started, and how its database is copied and put back without the journal."""

    serve_replicas: Callable[[], AbstractAsyncContextManager[Api]]
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
    data, stored_copy = base / "data", base / "kept"

    @asynccontextmanager
    async def serving_api() -> Any:
        settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=(base / "trusted",), sender_keys=TRUSTED)
        async with serving(create_app(settings)) as client:
            yield Api(client)

    def copy_to(source: Path, to: Path) -> None:
        for path in to.glob("server.db*"):
            path.unlink()
        to.mkdir(exist_ok=True)
        for path in source.glob("server.db*"):
            shutil.copy(path, to)

    return Place(serving_api, lambda: copy_to(data, stored_copy), lambda: copy_to(stored_copy, data))


def in_databases(cluster: Cluster, base: Path) -> Place:
    shared = Shared.make(cluster, base)

    @asynccontextmanager
    async def serving_api() -> Any:
        async with shared.serve_replicas(1, base / "trusted") as (api,):
            yield api

    def put_back() -> None:
        cluster.drop(shared.database)
        cluster.load(base / "dump", cluster.make_again(shared.database))

    return Place(serving_api, lambda: cluster.dump(shared.database, base / "dump"), put_back)


def batch(publication: bytes, n_decryptable: int = PEOPLE) -> bytes:
    """Return a batch of the round in which the first ``n_decryptable`` reports can be decrypted."""
    sealed = sealed_reports(publication, PEOPLE)
    return body_of(publication, sealed[:n_decryptable] + [bytes(len(message)) for message in sealed[n_decryptable:]])


async def deliver(api: Api, body: bytes, key: Ed25519PrivateKey) -> Any:
    return await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})


def prevent_closing(patched: pytest.MonkeyPatch) -> None:
    """No round is closed: the disk is full, or the learner has a defect."""

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    patched.setattr(RoundCloser, "close_round", fail)


async def create_shuffled_experiment(api: Api) -> bytes:
    assert (await api.create(SHUFFLED)).status_code == 201
    return await api.publication()


async def test_a_round_whose_batch_is_lost_is_abandoned(place, shuffler_key, monkeypatch):
    async with place.serve_replicas() as api:
        first = await create_shuffled_experiment(api)
    place.copy()
    with monkeypatch.context() as patched:
        prevent_closing(patched)
        async with place.serve_replicas() as api:
            assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
            assert (await api.facts())["version"] == 1
    place.put_back()
    async with place.serve_replicas() as api:
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "received": 0, "accepted": 0, "status": "open"} == facts
        assert (await api.client.get("/experiments/test/privacy")).json()["rounds"][0]["released"] is False
        assert_problem(await deliver(api, batch(first), shuffler_key), 409, "round-closed")
        assert (await deliver(api, batch(await api.publication()), shuffler_key)).json()["accepted"] == PEOPLE
        assert (await api.facts())["version"] == 1_000_002


async def test_a_database_that_has_the_batch_learns_from_it(place, shuffler_key, monkeypatch):
    with monkeypatch.context() as patched:
        prevent_closing(patched)
        async with place.serve_replicas() as api:
            first = await create_shuffled_experiment(api)
            body = batch(first)
            for status in (202, 200):
                assert (await deliver(api, body, shuffler_key)).status_code == status
    async with place.serve_replicas() as api:
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE} == facts


async def test_a_round_that_waits_for_another_batch_goes_on(place: Place, shuffler_key: Ed25519PrivateKey) -> None:
    """The shuffler still takes reports for it: only the reports of the first batch are lost."""
    async with place.serve_replicas() as api:
        first = await create_shuffled_experiment(api)
    place.copy()
    async with place.serve_replicas() as api:
        assert (await deliver(api, batch(first, n_decryptable=2), shuffler_key)).json()["closed"] is False
    place.put_back()
    async with place.serve_replicas() as api:
        assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
        facts = await api.facts()
        assert facts | {"version": 2, "accepted": PEOPLE} == facts


async def test_a_round_that_the_operator_ended_takes_no_batch(place, shuffler_key, monkeypatch):
    """The copy knows neither what the operator wanted nor that the shuffler was told."""
    async with place.serve_replicas() as api:
        first = await create_shuffled_experiment(api)
    place.copy()
    with monkeypatch.context() as patched:
        prevent_closing(patched)
        async with place.serve_replicas() as api:
            await make_change(api, "pause", {"seconds": 0})
            async with asyncio.timeout(20):
                while "privateer_round_close_failures 1" not in (await api.client.get("/metrics")).text:
                    await asyncio.sleep(0.02)
            assert_problem(await deliver(api, batch(first), shuffler_key), 409, "round-closed")
    place.put_back()
    async with place.serve_replicas() as api:
        assert (await api.facts())["version"] == 1_000_001


async def test_a_journal_that_cannot_be_written_keeps_the_batch_at_the_shuffler(tmp_path, shuffler_key, monkeypatch):
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    place = in_folder(tmp_path)
    async with place.serve_replicas() as api:
        first = await create_shuffled_experiment(api)
        with monkeypatch.context() as patched:
            prevent_closing(patched)
            patched.setattr(Journal, "record_end_of_batches", full)
            body = batch(first)
            assert_problem(await deliver(api, body, shuffler_key), 503, "unavailable")
    async with place.serve_replicas() as api:
        assert (await api.facts())["version"] == 2
        assert (await deliver(api, body, shuffler_key)).json()["accepted"] == PEOPLE


async def test_a_server_without_a_record_of_batches_is_detected(tmp_path, shuffler_key, monkeypatch):
    monkeypatch.setattr(Journal, "record_end_of_batches", lambda *_: None)
    with pytest.raises(AssertionError, match="1000001"):
        await test_a_round_whose_batch_is_lost_is_abandoned(in_folder(tmp_path), shuffler_key, monkeypatch)


async def test_an_operator_ends_a_round_after_the_journal_was_restored(tmp_path, shuffler_key, monkeypatch):
    """No stored record distinguishes such a round from an open round."""
    place = in_folder(tmp_path)
    async with place.serve_replicas() as api:
        first = await create_shuffled_experiment(api)
    shutil.copytree(tmp_path / "data", tmp_path / "all")
    with monkeypatch.context() as patched:
        prevent_closing(patched)
        async with place.serve_replicas() as api:
            assert (await deliver(api, batch(first), shuffler_key)).json()["closed"] is True
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "all", tmp_path / "data")
    async with place.serve_replicas() as api:
        assert await api.publication() == first
        await make_change(api, "pause", {"seconds": 0})
        async with asyncio.timeout(20):
            while (await api.facts())["version"] == 1:
                await asyncio.sleep(0.02)
        await make_change(api, "resume")
        assert (await api.client.get("/experiments/test/privacy")).json()["rounds"][0]["released"] is False
        assert (await deliver(api, batch(await api.publication()), shuffler_key)).json()["accepted"] == PEOPLE


# Two shufflers serve one experiment, by mistake or on purpose: what one of them acknowledges would be thrown away.


REPORTS = "/experiments/test/reports"


def shuffler_settings(folder: Path, name: str) -> ShufflerSettings:
    return ShufflerSettings(
        server_url="http://server",
        data=folder / name,
        public_key_file=folder / "trusted" / f"{name}.pub",
        min_batch=2,
        sender_keys=TRUSTED,
    )


async def test_the_second_shuffler_acknowledges_nothing(tmp_path: Path) -> None:
    server = create_server(
        ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "trusted",))
    )
    way = httpx.ASGITransport(server)
    first, second = (create_shuffler(shuffler_settings(tmp_path, name), way) for name in ("one", "two"))
    async with serving(server) as api, serving(second) as second_client:
        async with serving(first) as first_client:
            services = Pair(Api(api), first_client)
            await services.api.create(SHUFFLED)
            publication = await services.api.publication()
            people = sealed_reports(publication, 100)
            assert await services.uploads(publication, people[:50]) == 50
            refused = await second_client.post(REPORTS, content=body_of(publication, people[50:51]))
            problem = assert_problem(refused, 503, "unavailable")
            assert "another shuffler" in problem["detail"]
            assert "release" in problem["remedy"]
            assert await services.uploads(publication, people[50:]) == 50
            assert (await services.version(2))["accepted"] == 100

        assert_problem(await api.delete("/experiments/test/shuffler"), 401, "unauthorized")
        assert (await api.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        publication = await services.api.publication()
        person = body_of(publication, sealed_reports(publication, 1))
        async with asyncio.timeout(20):  # a claim in the second of the release is void
            while (await second_client.post(REPORTS, content=person)).status_code != 202:
                await asyncio.sleep(0.1)
        assert (await services.api.facts())["shuffler"] in TrustedKeys([tmp_path / "trusted" / "two.pub"]).by_id()


async def test_a_replayed_claim_is_refused_after_the_release(tmp_path: Path) -> None:
    """Whoever reads the network repeats the claim of a shuffler that is gone: the next one would stay out for good."""
    old_key = Ed25519PrivateKey.generate()
    (tmp_path / "gone.pub").write_text(old_key.public_key().public_bytes_raw().hex())
    async with serving(
        create_server(
            ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "gone.pub",))
        )
    ) as server:
        await Api(server).create(SHUFFLED)
        headers = {SIGNATURE_HEADER: sign_claim("test", old_key)}
        assert (await server.post("/experiments/test/shuffler", headers=headers)).status_code == 200
        assert (await server.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        assert_problem(await server.post("/experiments/test/shuffler", headers=headers), 409, "conflict")
        assert (await Api(server).facts())["shuffler"] is None


async def test_a_shuffler_that_may_not_claim_tells_its_operator_once(tmp_path, caplog):
    """Reports find no door; the operator reads why, and what to do, once however many people ask."""
    server = create_server(
        ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "trusted",))
    )
    app = create_shuffler(shuffler_settings(tmp_path, "one"), httpx.ASGITransport(server))
    async with serving(server) as api, serving(app) as shuffler:
        await Api(api).create(SHUFFLED)
        publication = await Api(api).publication()
        person = body_of(publication, sealed_reports(publication, 1))
        (tmp_path / "trusted" / "one.pub").unlink()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                problem = assert_problem(await shuffler.post(REPORTS, content=person), 503, "unavailable")
                assert "PRIVATEER_SHUFFLER_KEYS" in problem["remedy"]
        assert caplog.text.count("taking no reports for test: the learning server does not trust") == 1
