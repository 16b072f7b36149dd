"""Servers that share their data: what one does holds at the others, and a round ends once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_core.wire.token import authorization
from privateer_server.data import open_data
from privateer_server.rounds.open_round import restore_lost, with_sums
from tests.support.issuing import minted, settings
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem

pytestmark = pytest.mark.postgres
CENTRAL = {**SMALL, "privacy.model": "central", "privacy.delta": 1e-6}


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> Shared:
    return Shared.make(postgres, tmp_path)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.02)


async def send(api: Api, publication: bytes, sealed: list[bytes]) -> int:
    answer = await api.client.post("/reports", content=body_of(publication, sealed))
    return int(answer.json().get("accepted", 0))


async def agreed(servers: list[Api], name: str = "test") -> dict[str, Any]:
    """The facts of an experiment once all servers tell the same."""

    async def same() -> bool:
        told = [await one.facts(name) for one in servers]
        return all(one == told[0] for one in told)

    await until(same)
    return await servers[0].facts(name)


async def test_reports_through_both_fill_one_round(shared: Shared) -> None:
    async with shared.served(2) as (one, two):
        assert (await one.create(SMALL)).status_code == 201
        first = await one.publication()
        sealed = sealed_reports(first, 25)
        # The other server has not heard of the experiment yet, and reads before it refuses.
        assert await send(two, first, sealed[:3]) == 3
        parts = await asyncio.gather(*(send((one, two)[at % 2], first, [sealed[at]]) for at in range(3, 19)))
        assert sum(parts) == 16
        # What one has counted, the other does not count again.
        for server in (one, two):
            answer = await server.client.post("/reports", content=body_of(first, sealed[:19]))
            assert_problem(answer, 409, "duplicate-report")
        assert [part for (part,) in shared.rows("SELECT count(*) FROM parts")] == [2]
        # There is room for one more person, whoever is asked.
        last = await asyncio.gather(*(send((one, two)[at % 2], first, [sealed[at]]) for at in range(19, 25)))
        assert sum(last) == 1
        facts = await agreed([one, two])
        assert facts | {"version": 2, "accepted": 20, "received": 0} == facts
        assert await one.publication() == await two.publication()
        rounds = (await two.client.get("/experiments/test/history")).json()["rounds"]
        assert [row["received"] for row in rounds] == [20, 0]


async def test_a_server_that_is_behind_reads_before_it_refuses(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing rings and nobody looks: the one that published goes on, and the other hears of it by a report."""
    monkeypatch.setattr("privateer_server.experiments.replication.Follower.look", lambda _: asyncio.sleep(3600))
    async with shared.served(2) as (one, two):
        await one.create(SMALL)
        first = await one.publication()
        assert await send(two, first, sealed_reports(first, 20)) == 20
        await until(lambda: _has(two, version=2))
        second = await two.publication()
        assert (await one.facts())["version"] == 1
        assert await send(one, second, sealed_reports(second, 7)) == 7
        facts = await one.facts()
        assert facts | {"version": 2, "received": 7, "accepted": 27} == facts


async def _has(api: Api, **wanted: object) -> bool:
    facts = await api.facts()
    return facts | wanted == facts


async def test_what_an_operator_changes_at_one_holds_at_the_other(shared: Shared) -> None:
    async with shared.served(2) as (one, two):
        await one.create(SMALL)
        first = await one.publication()
        await send(one, first, sealed_reports(first, 5))
        assert (await two.client.post("/experiments/test/pause", headers=ADMIN)).status_code == 200
        assert (await agreed([one, two]))["status"] == "paused"
        # Each server adds to what the other one planned.
        assert (await one.client.post("/experiments/test/extend", json={"horizon": 1500}, headers=ADMIN)).is_success
        assert (await two.client.post("/experiments/test/retire-arm", json={"arm": "a"}, headers=ADMIN)).is_success
        assert (await one.client.post("/experiments/test/resume", headers=ADMIN)).is_success
        assert await send(two, first, sealed_reports(first, 15, seed=1)) == 15
        facts = await agreed([one, two])
        assert facts | {"version": 2, "status": "open"} == facts
        assert facts["people"]["planned"] == 1500
        assert facts["spec"]["experiment"]["retired"] == ["a"]
        for server in (one, two):
            log = (await server.client.get("/experiments/test/log", headers=ADMIN)).json()["changes"]
            assert [line["action"] for line in log] == ["create", "pause", "extend", "retire-arm", "resume"]
            assert all(line["since"] for line in log)


async def test_changes_at_the_same_time_are_all_kept_or_refused(shared: Shared) -> None:
    async with shared.served(2) as (one, two):
        await one.create(SMALL)
        await agreed([one, two])
        horizons = list(range(1100, 1900, 100))
        answers = await asyncio.gather(
            *(
                (one, two)[at % 2].client.post("/experiments/test/extend", json={"horizon": people}, headers=ADMIN)
                for at, people in enumerate(horizons)
            )
        )
        done = [people for people, answer in zip(horizons, answers, strict=True) if answer.status_code == 200]
        log = (await two.client.get("/experiments/test/log", headers=ADMIN)).json()["changes"]
        assert [line["detail"] for line in log[1:]] == [f"horizon {people}" for people in sorted(done)]
        # 503 where the other server was first, 422 where it made the horizon longer than that.
        assert {answer.status_code for answer in answers} <= {200, 422, 503}
        assert done


async def test_a_deleted_experiment_is_gone_everywhere(shared: Shared) -> None:
    async with shared.served(2) as (one, two):
        await one.create(SMALL)
        await agreed([one, two])
        first = await one.publication()
        assert (await two.client.delete("/experiments/test", headers=ADMIN)).json()["changed"] is True
        assert await send(one, first, sealed_reports(first, 1)) == 0

        async def gone() -> bool:
            return (await one.client.get("/experiments/test")).status_code == 410

        await until(gone)
        assert shared.cluster.execute("SELECT count(*) FROM keys", shared.journal) == [(0,)]
        assert (await one.create(SMALL)).status_code == 409


async def test_a_name_is_created_once(shared: Shared) -> None:
    async with shared.served(2) as servers:
        answers = await asyncio.gather(*(server.create(SMALL) for server in servers * 3))
        statuses = [answer.status_code for answer in answers]
        assert statuses.count(201) == 1
        assert set(statuses) <= {200, 201, 503}
        await agreed(servers)
        (digest,) = {await server.publication() for server in servers}
        assert digest


async def test_a_shuffler_claims_an_experiment_at_all_servers(shared: Shared, tmp_path: Path) -> None:
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    for at, key in enumerate(keys):
        (tmp_path / f"{at}.pub").write_text(key.public_key().public_bytes_raw().hex())
    async with shared.served(2, tmp_path / "0.pub", tmp_path / "1.pub") as (one, two):
        await one.create(SHUFFLED)
        first = await one.publication()

        async def deliver(server: Api, key: Ed25519PrivateKey, body: bytes, ahead: int = 0) -> Any:
            signed = {SIGNATURE_HEADER: BATCH.sign(body, key, time.time() + ahead)}
            return await server.client.post("/batches", content=body, headers=signed)

        body = body_of(first, sealed_reports(first, 100))
        assert (await deliver(two, keys[0], body)).status_code == 202
        again = await deliver(one, keys[0], body)
        assert (again.status_code, again.json()["accepted"]) == (200, 100)
        await until(lambda: _has(one, version=2, received=0))
        second = await one.publication()
        late = body_of(second, sealed_reports(second, 100))
        assert_problem(await deliver(one, keys[1], late), 403, "batch-refused")
        assert (await two.client.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        # Signatures are of whole seconds, and those of the second of the release are void.
        assert (await deliver(one, keys[1], late, ahead=2)).status_code == 202
        assert (await agreed([one, two]))["accepted"] == 200


async def test_one_server_closes_a_round_and_the_other_waits(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    from privateer_server.rounds.closing import Closer

    closing, most, drawn = 0, 0, list[bytes]()
    honest = Closer._on_record

    def slow(closer: Closer, ended: Any) -> Any:
        nonlocal closing, most
        closing += 1
        most = max(most, closing)
        time.sleep(0.3)
        entry = honest(closer, ended)
        drawn.append(entry.following.digest)
        closing -= 1
        return entry

    monkeypatch.setattr(Closer, "_on_record", slow)
    async with shared.served(2) as (one, two):
        await one.create(CENTRAL)
        for _ in range(3):
            publication, version = await one.publication(), (await one.facts())["version"]
            sealed = sealed_reports(publication, 20)
            await asyncio.gather(send(one, publication, sealed[:10]), send(two, publication, sealed[10:]))
            await until(lambda after=version + 1: _has(one, version=after))  # type: ignore[misc]
            await agreed([one, two])
        assert (most, len(drawn), (await one.facts())["accepted"]) == (1, 3, 60)


async def test_a_database_that_is_away_and_comes_back_loses_nothing(shared: Shared) -> None:
    async with shared.served(2) as (one, two):
        await one.create(SMALL)
        first = await one.publication()
        sealed = sealed_reports(first, 20)
        assert await send(one, first, sealed[:5]) + await send(two, first, sealed[5:10]) == 10
        shared.cluster.restart()
        counted = 0
        async with asyncio.timeout(30):
            for at in range(10, 20):
                while not (taken := await send((one, two)[at % 2], first, [sealed[at]])):
                    await asyncio.sleep(0.05)
                counted += taken
        await until(lambda: _has(one, version=2))
        assert (counted, (await agreed([one, two]))["accepted"]) == (10, 20)
        for server in (one, two):
            assert (await server.client.get("/readyz")).status_code == 200


async def test_an_answer_that_is_lost_while_a_group_is_committed_loses_and_doubles_nothing(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is committed and the connection breaks: the server does not know, and devices send it again."""
    from privateer_core.serving.store.database import Unreachable
    from privateer_server.store.report_ids import Locked

    honest, breaks = Locked.commit, [True]

    def commit(locked: Any, changes: Any) -> None:
        honest(locked, changes)
        if breaks and any(change.counted for change in changes):
            breaks.clear()
            raise Unreachable("the connection broke")

    monkeypatch.setattr(Locked, "commit", commit)
    async with shared.served(1) as (one,):
        await one.create(SMALL)
        first = await one.publication()
        sealed = sealed_reports(first, 12)
        answer = await one.client.post("/reports", content=body_of(first, sealed[:5]))
        assert_problem(answer, 503, "unavailable")
        answer = await one.client.post("/reports", content=body_of(first, sealed[:5]))
        assert_problem(answer, 409, "duplicate-report")
        assert await send(one, first, sealed) == 7
        assert (await one.facts())["received"] == 12
        assert shared.rows("SELECT count(*) FROM parts") == [(2,)]
        opened = open_data(shared.settings())
        facts = decode_publication(first).round
        blank = restore_lost(opened.store.experiments()[0].current)
        whole = with_sums(blank, opened.store.sums("test", 1), opened.keys.find(facts.public_key))
        opened.close()
        assert whole is not None
        assert whole.total.reports == 12


async def test_a_backup_is_refused_with_a_remedy(shared: Shared) -> None:
    async with shared.served(1) as (one,):
        problem = assert_problem(await one.client.get("/backup", headers=ADMIN), 409, "conflict")
        assert "pg_dump" in problem["remedy"]


async def test_servers_need_no_rights_beyond_their_databases(postgres: Cluster, tmp_path: Path) -> None:
    shared = Shared.make(postgres, tmp_path)
    owned = []
    postgres.execute("CREATE ROLE privateer LOGIN")
    for url in (shared.database, shared.journal):
        name = url.partition("@/")[2].partition("?")[0]
        postgres.execute(f"ALTER DATABASE {name} OWNER TO privateer")
        owned.append(url.replace("postgres@", "privateer@"))
    async with replace(shared, database=owned[0], journal=owned[1]).served(2) as (one, two):
        await one.create(SMALL)
        first = await one.publication()
        assert await send(two, first, sealed_reports(first, 20)) == 20
        await until(lambda: _has(one, version=2))


async def test_a_key_file_that_is_lost_costs_the_open_round(shared: Shared) -> None:
    """What docs/operations/scale-servers.md says to do then."""
    async with shared.served(1) as (one,):
        await one.create(SMALL)
        first = await one.publication()
        assert await send(one, first, sealed_reports(first, 5)) == 5
    shared.cluster.execute("TRUNCATE keys, seal", shared.journal)
    shared.key_file.write_bytes(b"n" * 32)
    async with shared.served(2) as (one, two):
        facts = await agreed([one, two])
        assert facts | {"version": 1_000_001, "received": 0, "status": "open"} == facts
        following = await one.publication()
        assert await send(two, following, sealed_reports(following, 20)) == 20


async def test_a_token_is_spent_once_whoever_is_asked(shared: Shared, tmp_path: Path) -> None:
    gate = settings(tmp_path / "tokens", "test", origin="server:80")
    async with shared.served(2, tokens=gate) as servers:
        await servers[0].create(SMALL)
        first, token = await servers[0].publication(), minted("test", "server:80")
        sealed = sealed_reports(first, 12)

        async def report(at: int, one: bytes, paid: bytes) -> Any:
            headers = {"authorization": authorization(paid)}
            body = body_of(first, [one])
            return await servers[at % 2].client.post("/reports", content=body, headers=headers, auth=httpx.Auth())

        answers = await asyncio.gather(*(report(at, one, token) for at, one in enumerate(sealed)))
        statuses = [answer.status_code for answer in answers]
        assert sorted(statuses) == [202] + [401] * 11
        winner = statuses.index(202)
        for at in range(2):
            assert_problem(await report(at, sealed[winner - 1], token), 401, "token-spent")
            assert_problem(await report(at, sealed[winner], token), 409, "duplicate-report")
        assert (await agreed(servers))["received"] == 1
