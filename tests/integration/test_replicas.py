"""Servers that share their data: changes at one server hold at all, and a round ends once."""

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
from privateer_server.rounds.open_round import add_stored_sums, restore_without_sums
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


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.02)


async def send(api: Api, publication: bytes, sealed: list[bytes]) -> int:
    answer = await api.client.post("/reports", content=body_of(publication, sealed))
    return int(answer.json().get("accepted", 0))


async def wait_for_agreement(servers: list[Api], name: str = "test") -> dict[str, Any]:
    """The facts of an experiment once all servers tell the same."""

    async def is_agreed() -> bool:
        facts = [await server.facts(name) for server in servers]
        return all(server == facts[0] for server in facts)

    await wait_until(is_agreed)
    return await servers[0].facts(name)


async def test_reports_through_two_servers_fill_one_round(shared: Shared) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        assert (await red.create(SMALL)).status_code == 201
        first = await red.publication()
        sealed = sealed_reports(first, 25)
        # The other server has not heard of the experiment yet, and reads before it refuses.
        assert await send(blue, first, sealed[:3]) == 3
        parts = await asyncio.gather(*(send((red, blue)[at % 2], first, [sealed[at]]) for at in range(3, 19)))
        assert sum(parts) == 16
        # What one has counted, the other does not count again.
        for server in (red, blue):
            answer = await server.client.post("/reports", content=body_of(first, sealed[:19]))
            assert_problem(answer, 409, "duplicate-report")
        assert [part for (part,) in shared.rows("SELECT count(*) FROM parts")] == [2]
        # There is room for one more person, whoever is asked.
        last = await asyncio.gather(*(send((red, blue)[at % 2], first, [sealed[at]]) for at in range(19, 25)))
        assert sum(last) == 1
        facts = await wait_for_agreement([red, blue])
        assert facts | {"version": 2, "accepted": 20, "received": 0} == facts
        assert await red.publication() == await blue.publication()
        rounds = (await blue.client.get("/experiments/test/history")).json()["rounds"]
        assert [row["received"] for row in rounds] == [20, 0]


async def test_a_server_that_is_behind_reads_before_it_refuses(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """No notification comes, and the timer is off: the other server hears of the new round by a report."""
    monkeypatch.setattr(
        "privateer_server.rounds.background_checks.Follower.refresh_experiments", lambda _: asyncio.sleep(3600)
    )
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        first = await red.publication()
        assert await send(blue, first, sealed_reports(first, 20)) == 20
        await wait_until(lambda: _has(blue, version=2))
        second = await blue.publication()
        assert (await red.facts())["version"] == 1
        assert await send(red, second, sealed_reports(second, 7)) == 7
        facts = await red.facts()
        assert facts | {"version": 2, "received": 7, "accepted": 27} == facts


async def _has(api: Api, **expected: object) -> bool:
    facts = await api.facts()
    return facts | expected == facts


async def test_an_operators_changes_at_one_server_hold_at_the_other(shared: Shared) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        first = await red.publication()
        await send(red, first, sealed_reports(first, 5))
        assert (await blue.client.post("/experiments/test/pause", headers=ADMIN)).status_code == 200
        assert (await wait_for_agreement([red, blue]))["status"] == "paused"
        # Each server adds to what the other one planned.
        assert (await red.client.post("/experiments/test/extend", json={"horizon": 1500}, headers=ADMIN)).is_success
        assert (await blue.client.post("/experiments/test/retire-arm", json={"arm": "a"}, headers=ADMIN)).is_success
        assert (await red.client.post("/experiments/test/resume", headers=ADMIN)).is_success
        assert await send(blue, first, sealed_reports(first, 15, seed=1)) == 15
        facts = await wait_for_agreement([red, blue])
        assert facts | {"version": 2, "status": "open"} == facts
        assert facts["people"]["planned"] == 1500
        assert facts["spec"]["experiment"]["retired_arms"] == ["a"]
        for server in (red, blue):
            log = (await server.client.get("/experiments/test/log", headers=ADMIN)).json()["changes"]
            assert [line["action"] for line in log] == ["create", "pause", "extend", "retire-arm", "resume"]
            assert all(line["since_version"] for line in log)


async def test_changes_at_the_same_time_are_all_kept_or_refused(shared: Shared) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        await wait_for_agreement([red, blue])
        horizons = list(range(1100, 1900, 100))
        answers = await asyncio.gather(
            *(
                (red, blue)[at % 2].client.post("/experiments/test/extend", json={"horizon": people}, headers=ADMIN)
                for at, people in enumerate(horizons)
            )
        )
        accepted = [people for people, answer in zip(horizons, answers, strict=True) if answer.status_code == 200]
        log = (await blue.client.get("/experiments/test/log", headers=ADMIN)).json()["changes"]
        assert [line["detail"] for line in log[1:]] == [f"horizon {people}" for people in sorted(accepted)]
        # 503 where the other server was first, 422 where it made the horizon longer than that.
        assert {answer.status_code for answer in answers} <= {200, 422, 503}
        assert accepted


async def test_a_deleted_experiment_is_gone_everywhere(shared: Shared) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        await wait_for_agreement([red, blue])
        first = await red.publication()
        assert (await blue.client.delete("/experiments/test", headers=ADMIN)).json()["changed"] is True
        assert await send(red, first, sealed_reports(first, 1)) == 0

        async def is_gone() -> bool:
            return (await red.client.get("/experiments/test")).status_code == 410

        await wait_until(is_gone)
        assert shared.cluster.execute("SELECT count(*) FROM keys", shared.journal) == [(0,)]
        assert (await red.create(SMALL)).status_code == 409


async def test_a_name_is_created_once(shared: Shared) -> None:
    async with shared.serve_replicas(2) as servers:
        answers = await asyncio.gather(*(server.create(SMALL) for server in servers * 3))
        statuses = [answer.status_code for answer in answers]
        assert statuses.count(201) == 1
        assert set(statuses) <= {200, 201, 503}
        await wait_for_agreement(servers)
        (digest,) = {await server.publication() for server in servers}
        assert digest


async def test_a_shuffler_claims_an_experiment_at_all_servers(shared: Shared, tmp_path: Path) -> None:
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    for at, key in enumerate(keys):
        (tmp_path / f"{at}.pub").write_text(key.public_key().public_bytes_raw().hex())
    async with shared.serve_replicas(2, tmp_path / "0.pub", tmp_path / "1.pub") as (red, blue):
        await red.create(SHUFFLED)
        first = await red.publication()

        async def deliver(server: Api, key: Ed25519PrivateKey, body: bytes, seconds_ahead: int = 0) -> Any:
            signed = {SIGNATURE_HEADER: BATCH.sign(body, key, time.time() + seconds_ahead)}
            return await server.client.post("/batches", content=body, headers=signed)

        body = body_of(first, sealed_reports(first, 100))
        assert (await deliver(blue, keys[0], body)).status_code == 202
        repeated = await deliver(red, keys[0], body)
        assert (repeated.status_code, repeated.json()["accepted"]) == (200, 100)
        await wait_until(lambda: _has(red, version=2, received=0))
        second = await red.publication()
        late = body_of(second, sealed_reports(second, 100))
        assert_problem(await deliver(red, keys[1], late), 403, "batch-refused")
        assert (await blue.client.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        # Signatures are of whole seconds, and those of the second of the release are void.
        assert (await deliver(red, keys[1], late, seconds_ahead=2)).status_code == 202
        assert (await wait_for_agreement([red, blue]))["accepted"] == 200


async def test_one_server_closes_a_round_and_the_other_waits(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    from privateer_server.rounds.closing import RoundCloser

    closing, max_closing, digests = 0, 0, list[bytes]()
    honest = RoundCloser._read_or_write_entry

    def slow(closer: RoundCloser, ended: Any) -> Any:
        nonlocal closing, max_closing
        closing += 1
        max_closing = max(max_closing, closing)
        time.sleep(0.3)
        entry = honest(closer, ended)
        digests.append(entry.following.digest)
        closing -= 1
        return entry

    monkeypatch.setattr(RoundCloser, "_read_or_write_entry", slow)
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(CENTRAL)
        for _ in range(3):
            publication, version = await red.publication(), (await red.facts())["version"]
            sealed = sealed_reports(publication, 20)
            await asyncio.gather(send(red, publication, sealed[:10]), send(blue, publication, sealed[10:]))
            await wait_until(lambda after=version + 1: _has(red, version=after))  # type: ignore[misc]
            await wait_for_agreement([red, blue])
        assert (max_closing, len(digests), (await red.facts())["accepted"]) == (1, 3, 60)


async def test_a_database_that_is_away_and_comes_back_loses_nothing(shared: Shared) -> None:
    async with shared.serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        first = await red.publication()
        sealed = sealed_reports(first, 20)
        assert await send(red, first, sealed[:5]) + await send(blue, first, sealed[5:10]) == 10
        shared.cluster.restart()
        counted = 0
        async with asyncio.timeout(30):
            for at in range(10, 20):
                while not (n_counted := await send((red, blue)[at % 2], first, [sealed[at]])):
                    await asyncio.sleep(0.05)
                counted += n_counted
        await wait_until(lambda: _has(red, version=2))
        assert (counted, (await wait_for_agreement([red, blue]))["accepted"]) == (10, 20)
        for server in (red, blue):
            assert (await server.client.get("/readyz")).status_code == 200


async def test_an_answer_that_is_lost_while_a_group_is_committed_loses_and_doubles_nothing(shared, monkeypatch):
    """The group is committed and the connection breaks: the server does not know, and devices send it again."""
    from privateer_core.serving.store.database import Unreachable
    from privateer_server.store.rounds import LockedExperiments

    honest, breaks = LockedExperiments.commit, [True]

    def commit(locked: Any, changes: Any) -> None:
        honest(locked, changes)
        if breaks and any(change.counted for change in changes):
            breaks.clear()
            raise Unreachable("the connection broke")

    monkeypatch.setattr(LockedExperiments, "commit", commit)
    async with shared.serve_replicas(1) as (server,):
        await server.create(SMALL)
        first = await server.publication()
        sealed = sealed_reports(first, 12)
        answer = await server.client.post("/reports", content=body_of(first, sealed[:5]))
        assert_problem(answer, 503, "unavailable")
        answer = await server.client.post("/reports", content=body_of(first, sealed[:5]))
        assert_problem(answer, 409, "duplicate-report")
        assert await send(server, first, sealed) == 7
        assert (await server.facts())["received"] == 12
        assert shared.rows("SELECT count(*) FROM parts") == [(2,)]
        opened = open_data(shared.settings())
        facts = decode_publication(first).round
        blank = restore_without_sums(opened.store.experiments()[0].current)
        whole = add_stored_sums(blank, opened.store.sums("test", 1), opened.keys.find_decryptor(facts.public_key))
        opened.close()
        assert whole.total.reports == 12


async def test_a_backup_is_refused_with_a_remedy(shared: Shared) -> None:
    async with shared.serve_replicas(1) as (server,):
        problem = assert_problem(await server.client.get("/backup", headers=ADMIN), 409, "conflict")
        assert "pg_dump" in problem["remedy"]


async def test_servers_need_no_rights_beyond_their_databases(postgres: Cluster, tmp_path: Path) -> None:
    shared = Shared.make(postgres, tmp_path)
    owned = []
    postgres.execute("CREATE ROLE privateer LOGIN")
    for url in (shared.database, shared.journal):
        name = url.partition("@/")[2].partition("?")[0]
        postgres.execute(f"ALTER DATABASE {name} OWNER TO privateer")
        owned.append(url.replace("postgres@", "privateer@"))
    async with replace(shared, database=owned[0], journal=owned[1]).serve_replicas(2) as (red, blue):
        await red.create(SMALL)
        first = await red.publication()
        assert await send(blue, first, sealed_reports(first, 20)) == 20
        await wait_until(lambda: _has(red, version=2))


async def test_a_key_file_that_is_lost_costs_the_open_round(shared: Shared) -> None:
    """What docs/operations/scale-servers.md says to do then."""
    async with shared.serve_replicas(1) as (red,):
        await red.create(SMALL)
        first = await red.publication()
        assert await send(red, first, sealed_reports(first, 5)) == 5
    shared.cluster.execute("TRUNCATE keys, seal", shared.journal)
    shared.key_file.write_bytes(b"n" * 32)
    async with shared.serve_replicas(2) as (red, blue):
        facts = await wait_for_agreement([red, blue])
        assert facts | {"version": 1_000_001, "received": 0, "status": "open"} == facts
        following = await red.publication()
        assert await send(blue, following, sealed_reports(following, 20)) == 20


async def test_a_token_is_spent_once_at_whichever_server(shared: Shared, tmp_path: Path) -> None:
    gate = settings(tmp_path / "tokens", "test", origin="server:80")
    async with shared.serve_replicas(2, tokens=gate) as servers:
        await servers[0].create(SMALL)
        first, token = await servers[0].publication(), minted("test", "server:80")
        sealed = sealed_reports(first, 12)

        async def report(at: int, sealed_report: bytes, paid_token: bytes) -> Any:
            headers = {"authorization": authorization(paid_token)}
            body = body_of(first, [sealed_report])
            return await servers[at % 2].client.post("/reports", content=body, headers=headers, auth=httpx.Auth())

        answers = await asyncio.gather(*(report(at, sealed_report, token) for at, sealed_report in enumerate(sealed)))
        statuses = [answer.status_code for answer in answers]
        assert sorted(statuses) == [202] + [401] * 11
        winner = statuses.index(202)
        for at in range(2):
            assert_problem(await report(at, sealed[winner - 1], token), 401, "token-spent")
            assert_problem(await report(at, sealed[winner], token), 409, "duplicate-report")
        assert (await wait_for_agreement(servers))["received"] == 1
