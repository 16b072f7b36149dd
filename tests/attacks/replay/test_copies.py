"""A database is put back from an earlier copy: nothing is released or counted twice."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, SHUFFLED, TOKEN, Api, assert_problem

# A database is put back from a copy, and a round that was released is released again, with other noise.
#
# Two releases of one curator's sums halve the noise, and releases of sums that differ by one person tell that person.


PEOPLE = 20
CENTRAL = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.round_size": PEOPLE,
    "experiment.horizon": 1000,
}


@asynccontextmanager
async def serving_api(data: Path, *shufflers: Path) -> AsyncIterator[Api]:
    settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=shufflers, sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        yield Api(client)


def database_alone(copy: Path, data: Path) -> None:
    """Somebody puts back yesterday's ``server.db``."""
    for path in data.glob("server.db*"):
        path.unlink()
    for path in copy.glob("server.db*"):
        shutil.copy(path, data)


def all_but_the_journal(copy: Path, data: Path) -> None:
    """Somebody puts the whole folder back, keys of rounds included; the journal is on another disk."""
    for path in copy.glob("*"):
        if path.is_dir():
            shutil.copytree(path, data / path.name, dirs_exist_ok=True)
        elif "journal" not in path.name:
            shutil.copy(path, data)


def into_an_empty_folder(copy: Path, data: Path) -> None:
    """Somebody moves to another machine, and forgets the journal."""
    shutil.rmtree(data)
    data.mkdir()
    all_but_the_journal(copy, data)


async def fetch_releases(api: Api) -> list[tuple[int, bytes]]:
    """Return the released versions, each with the publication that followed it."""
    rounds = (await api.client.get("/experiments/test/privacy")).json()["rounds"]
    releases = []
    for row in rounds:
        if row["released"]:
            response = await api.client.get(f"/experiments/test/policy/{row['version'] + 1}")
            releases.append((row["version"], response.content))
    return releases


async def send(api: Api, publication: bytes, sealed: list[bytes]) -> int:
    answer = (await api.client.post("/reports", content=body_of(publication, sealed))).json()
    return int(answer.get("accepted", 0))


@pytest.mark.parametrize("put_back", [database_alone, all_but_the_journal, into_an_empty_folder])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.battery
async def test_a_round_is_released_once_whatever_copy_is_put_back(tmp_path, put_back, rounds):
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with serving_api(data) as api:
        await api.create(CENTRAL)
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(api, first, sealed[:12]) == 12
        shutil.copytree(data, copy)
        await send(api, first, sealed[12:PEOPLE])
        for _ in range(rounds - 1):
            later = await api.publication()
            await send(api, later, sealed_reports(later, PEOPLE))
        before = await fetch_releases(api)
        latest = (await api.facts())["version"]
    assert len(before) == rounds
    put_back(copy, data)
    async with serving_api(data) as api:
        # Twelve are in the copy; eight others would fill its round, and differ from the first release by eight people.
        await send(api, first, sealed[PEOPLE:])
        following = await api.publication()
        await send(api, following, sealed_reports(following, PEOPLE, seed=1))
        releases = await fetch_releases(api)
        assert [release for release in releases if release[0] <= latest and release not in before] == []
        assert (await api.facts())["version"] > latest


async def test_a_backup_cannot_bring_an_open_round_back(tmp_path: Path) -> None:
    from privateer_server.store.backup import restore
    from privateer_server.store.schema import STORE_KIND as DATABASE

    data, copy = tmp_path / "data", tmp_path / "copy"
    copy.mkdir()
    async with serving_api(data) as api:
        await api.create(CENTRAL)
        early = await api.publication()
        await send(api, early, sealed_reports(early, PEOPLE))
        first = await api.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        await send(api, first, sealed[:12])
        answer = await api.client.get("/backup", headers=ADMIN)
        assert answer.status_code == 200
        (copy / "server.db").write_bytes(answer.content)
        await send(api, first, sealed[12:PEOPLE])
        before = await fetch_releases(api)
        assert [version for version, _ in before] == [1, 2]
    restore(copy / "server.db", tmp_path / "new", DATABASE)
    async with serving_api(tmp_path / "new") as api:
        facts = await api.facts()
        assert facts | {"version": 1_000_001, "received": 0, "status": "open"} == facts
        assert await send(api, first, sealed[PEOPLE:]) == 0
        following = await api.publication()
        assert await send(api, following, sealed_reports(following, PEOPLE, seed=1)) == PEOPLE
        releases = await fetch_releases(api)
        assert [version for version, _ in releases] == [1, 1_000_001]


async def test_a_shuffler_goes_on_with_the_restored_server(tmp_path: Path) -> None:
    """The batch of the round that was given up is not counted, and the next version is above all it has seen."""
    data, copy, key = tmp_path / "data", tmp_path / "copy", Ed25519PrivateKey.generate()
    trusted = tmp_path / "one.pub"
    trusted.write_text(key.public_key().public_bytes_raw().hex())
    async with serving_api(data, trusted) as api:
        await api.create(SHUFFLED)
        first = await api.publication()
        shutil.copytree(data, copy)
        assert (await deliver(api, first, key)).status_code == 202
        second = await api.publication()
    all_but_the_journal(copy, data)
    async with serving_api(data, trusted) as api:
        for earlier in (first, second):
            assert_problem(await deliver(api, earlier, key), 409, "round-closed")
        following = await api.publication()
        assert (await deliver(api, following, key)).status_code == 202
        assert (await api.facts())["version"] == 1_000_002


async def deliver(api: Api, publication: bytes, key: Ed25519PrivateKey) -> Any:
    body = body_of(publication, sealed_reports(publication, 100))
    return await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})


# A database that servers share is put back from a dump, and a round that was released is released again.


def load_dump(shared: Shared, url: str, dump: Path) -> None:
    shared.cluster.drop(url)
    shared.cluster.load(dump, shared.cluster.make_again(url))


def database_alone_of_shared(shared: Shared, folder: Path) -> None:
    """Somebody puts back yesterday's database, as docs/operations/scale-servers.md says."""
    load_dump(shared, shared.database, folder / "store")


def dumps_of_both_databases(shared: Shared, folder: Path) -> None:
    """Put back dumps of both databases, keys of rounds included, against the documented procedure."""
    load_dump(shared, shared.database, folder / "store")
    load_dump(shared, shared.journal, folder / "journal")


def without_the_journal(shared: Shared, folder: Path) -> None:
    """Somebody moves to another machine, and the journal is lost."""
    load_dump(shared, shared.database, folder / "store")
    shared.cluster.drop(shared.journal)
    shared.cluster.make_again(shared.journal)


async def fill_rounds(server: Api, rounds: int, sealed: list[bytes], first: bytes) -> list[tuple[int, bytes]]:
    """Fill the round that the dump has open, and some after it."""
    await send(server, first, sealed[12:PEOPLE])
    for _ in range(rounds - 1):
        later = await server.publication()
        await send(server, later, sealed_reports(later, PEOPLE))
    return await fetch_releases(server)


@pytest.mark.postgres
@pytest.mark.parametrize("put_back", [database_alone_of_shared, dumps_of_both_databases, without_the_journal])
@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_round_is_released_once_whatever_dump_is_put_back(postgres, tmp_path, put_back, rounds):
    shared = Shared.make(postgres, tmp_path)
    async with shared.serve_replicas(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(server, first, sealed[:12]) == 12
        postgres.dump(shared.database, tmp_path / "store")
        postgres.dump(shared.journal, tmp_path / "journal")
        before = await fill_rounds(server, rounds, sealed, first)
        latest = (await server.facts())["version"]
    assert len(before) == rounds
    put_back(shared, tmp_path)
    async with shared.serve_replicas(2) as (first_server, second_server):
        # Twelve are in the dump; eight others would fill its round, and differ from the first release by eight people.
        assert await send(first_server, first, sealed[PEOPLE:]) == 0
        following = await second_server.publication()
        assert await send(second_server, following, sealed_reports(following, PEOPLE, seed=1)) == PEOPLE
        releases = await fetch_releases(second_server)
        assert [release for release in releases if release[0] <= latest and release not in before] == []
        assert (await second_server.facts())["version"] == 1_000_002


@pytest.mark.postgres
async def test_a_dump_has_no_key_and_no_sums_that_open(postgres: Cluster, tmp_path: Path) -> None:
    """The key file and a dump decrypt no sums: the keys of rounds are in the journal's database."""
    shared = Shared.make(postgres, tmp_path)
    async with shared.serve_replicas(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        await send(server, first, sealed_reports(first, 5))
        tables = {name for (name,) in shared.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
        assert "keys" not in tables
        assert shared.cluster.execute("SELECT count(*) FROM keys", shared.journal) == [(1,)]


@pytest.mark.postgres
async def test_the_key_of_a_round_is_deleted_with_the_round(postgres: Cluster, tmp_path: Path) -> None:
    shared = Shared.make(postgres, tmp_path)
    async with shared.serve_replicas(2) as (first_server, second_server):
        await first_server.create(CENTRAL)
        for _ in range(2):
            publication = await second_server.publication()
            ((key,),) = shared.cluster.execute("SELECT public_key FROM keys", shared.journal)
            assert await send(second_server, publication, sealed_reports(publication, PEOPLE)) == PEOPLE
            ((following,),) = shared.cluster.execute("SELECT public_key FROM keys", shared.journal)
            assert following != key


@pytest.mark.postgres
async def test_a_server_does_not_go_on_with_a_database_that_is_put_back_under_it(postgres, tmp_path):
    shared = Shared.make(postgres, tmp_path)
    async with shared.serve_replicas(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(server, first, sealed[:12]) == 12
        postgres.dump(shared.database, tmp_path / "store")
        before = await fill_rounds(server, 1, sealed, first)
        database_alone_of_shared(shared, tmp_path)
        for _ in range(3):
            assert await send(server, first, sealed[PEOPLE:]) == 0
        assert (await server.client.get("/readyz")).status_code == 503
    async with shared.serve_replicas(1) as (server,):
        assert (await server.facts())["version"] == 1_000_001
        assert [release for release in await fetch_releases(server) if release not in before] == []
