"""A database that servers share is put back from a dump, and a round that was released is released again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.test_second_releases import CENTRAL, PEOPLE, released, send
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import sealed_reports
from tests.support.servers import Api

pytestmark = pytest.mark.postgres
PutBack = Callable[[Shared, Path], None]


def again(shared: Shared, url: str, dump: Path) -> None:
    shared.cluster.drop(url)
    shared.cluster.load(dump, shared.cluster.make_again(url))


def database_alone(shared: Shared, folder: Path) -> None:
    """Somebody puts back yesterday's database, as docs/operations/scale-servers.md says."""
    again(shared, shared.database, folder / "store")


def both(shared: Shared, folder: Path) -> None:
    """Somebody has dumped what nobody should, and puts it back, keys of rounds included."""
    again(shared, shared.database, folder / "store")
    again(shared, shared.journal, folder / "journal")


def without_the_journal(shared: Shared, folder: Path) -> None:
    """Somebody moves to another machine, and the journal is lost."""
    again(shared, shared.database, folder / "store")
    shared.cluster.drop(shared.journal)
    shared.cluster.make_again(shared.journal)


async def told_by(server: Api, rounds: int, sealed: list[bytes], first: bytes) -> list[tuple[int, bytes]]:
    """Fill the round that the dump has open, and some after it."""
    await send(server, first, sealed[12:PEOPLE])
    for _ in range(rounds - 1):
        later = await server.publication()
        await send(server, later, sealed_reports(later, PEOPLE))
    return await released(server)


@pytest.mark.parametrize("put_back", [database_alone, both, without_the_journal])
@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_round_is_released_once_whatever_dump_is_put_back(
    postgres: Cluster, tmp_path: Path, put_back: PutBack, rounds: int
) -> None:
    shared = Shared.make(postgres, tmp_path)
    async with shared.served(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(server, first, sealed[:12]) == 12
        postgres.dump(shared.database, tmp_path / "store")
        postgres.dump(shared.journal, tmp_path / "journal")
        before = await told_by(server, rounds, sealed, first)
        latest = (await server.facts())["version"]
    assert len(before) == rounds
    put_back(shared, tmp_path)
    async with shared.served(2) as (one, two):
        # Twelve are in the dump; eight others would fill its round, and differ from the first release by eight people.
        assert await send(one, first, sealed[PEOPLE:]) == 0
        following = await two.publication()
        assert await send(two, following, sealed_reports(following, PEOPLE, seed=1)) == PEOPLE
        now = await released(two)
        assert [told for told in now if told[0] <= latest and told not in before] == []
        assert (await two.facts())["version"] == 1_000_002


async def test_a_dump_has_no_key_and_no_sums_that_open(postgres: Cluster, tmp_path: Path) -> None:
    """The key file and a dump open nothing: the keys of rounds are in the other database."""
    shared = Shared.make(postgres, tmp_path)
    async with shared.served(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        await send(server, first, sealed_reports(first, 5))
        tables = {name for (name,) in shared.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
        assert "keys" not in tables
        assert shared.cluster.execute("SELECT count(*) FROM keys", shared.journal) == [(1,)]


async def test_the_key_of_a_round_goes_with_it(postgres: Cluster, tmp_path: Path) -> None:
    shared = Shared.make(postgres, tmp_path)
    async with shared.served(2) as (one, two):
        await one.create(CENTRAL)
        for _ in range(2):
            publication = await two.publication()
            ((key,),) = shared.cluster.execute("SELECT public_key FROM keys", shared.journal)
            assert await send(two, publication, sealed_reports(publication, PEOPLE)) == PEOPLE
            ((following,),) = shared.cluster.execute("SELECT public_key FROM keys", shared.journal)
            assert following != key


async def test_a_server_does_not_go_on_with_a_database_that_is_put_back_under_it(
    postgres: Cluster, tmp_path: Path
) -> None:
    shared = Shared.make(postgres, tmp_path)
    async with shared.served(1) as (server,):
        await server.create(CENTRAL)
        first = await server.publication()
        sealed = sealed_reports(first, PEOPLE + 8)
        assert await send(server, first, sealed[:12]) == 12
        postgres.dump(shared.database, tmp_path / "store")
        before = await told_by(server, 1, sealed, first)
        database_alone(shared, tmp_path)
        for _ in range(3):
            assert await send(server, first, sealed[PEOPLE:]) == 0
        assert (await server.client.get("/readyz")).status_code == 503
    async with shared.served(1) as (server,):
        assert (await server.facts())["version"] == 1_000_001
        assert [told for told in await released(server) if told not in before] == []
