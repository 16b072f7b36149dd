"""Shufflers that share a database: all take reports, they fill a common batch, and one delivers it."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from scipy import stats

from privateer_core.clock import SystemClock
from privateer_core.errors import SpecError, Unavailable
from privateer_core.serving.store.leases import Leases
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.keys import load_or_create_key
from privateer_core.wire.publication import decode_publication, split_bytes
from privateer_core.wire.token import authorization
from privateer_shuffler.app import create_app
from privateer_shuffler.pool import shared_store
from privateer_shuffler.pool.pool import Label
from privateer_shuffler.pool.store import LastPublication
from privateer_shuffler.pool.uploads import PoolReceipt
from privateer_shuffler.resources import open_resources
from tests.support.issuing import minted
from tests.support.issuing import settings as tokens
from tests.support.postgres import Cluster
from tests.support.shufflers import SharedShufflers
from tests.support.statistics import FALSE_ALARM
from tests.unit.shuffler.fake_server import SIZE, body_of
from tests.unit.shuffler.helpers import Shuffler, assert_problem, sealed_reports, until

pytestmark = pytest.mark.postgres


@pytest.fixture
def shared(postgres: Cluster, tmp_path: Path) -> SharedShufflers:
    return SharedShufflers.make(postgres, tmp_path)


async def upload(shufflers: list[Shuffler], header: Any, sealed: list[bytes], at_once: int = 1) -> list[int]:
    """Reports by turns, at the same time; the statuses."""
    groups = [sealed[start : start + at_once] for start in range(0, len(sealed), at_once)]
    requests = (shufflers[at % len(shufflers)].post(header, group) for at, group in enumerate(groups))
    return [answer.status_code for answer in await asyncio.gather(*requests)]


async def test_replicas_fill_one_batch_and_one_delivers_it(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=40), sealed_reports(50)
    async with shared.serve_replicas(3) as shufflers:
        statuses = await upload(shufflers, header, reports)
        assert (statuses.count(202), statuses.count(503)) == (40, 10)
        await until(lambda: bool(shared.server.delivered))
        received = shared.server.received()
        accepted = [report for report, status in zip(reports, statuses, strict=True) if status == 202]
        assert sorted(received) == sorted(accepted)
        assert len(shared.server.attempts) == 1
        # It is over everywhere, and nothing is left of it.
        for shuffler in shufflers:
            await until_over(shuffler, header)
        assert shared.rows("SELECT (SELECT count(*) FROM rounds), (SELECT count(*) FROM pieces)") == [(0, 0)]
        assert shared.rows("SELECT count(*) FROM fingerprints") == [(0,)]


async def until_over(shuffler: Shuffler, header: Any) -> None:
    async with asyncio.timeout(20):
        while (await shuffler.post(header, sealed_reports(1))).status_code != 409:
            await asyncio.sleep(0.05)


async def test_uploads_during_the_end_of_a_round_are_answered(shared: SharedShufflers) -> None:
    """Uploads come at every moment of the end: before its last look at the database, during it, and after it."""
    header, reports = shared.server.publish(batch=100), sealed_reports(400)
    facts, resources = decode_publication(shared.server.publications["spring"]).round, open_resources(shared.settings)
    resources.pool_store.store_publication("spring", LastPublication(1, header.digest))
    pool = await resources.pool_store.create_round(Label(facts, header.digest))
    receipts = [pool.hold([report]) for report in reports[:10]]
    ending = asyncio.create_task(pool.forget())
    for report in reports[10:]:
        with suppress(Unavailable):
            receipts.append(pool.hold([report]))
        await asyncio.sleep(0 if ending.done() else 0.001)
    assert ending.done()
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*receipts, return_exceptions=True)
    assert await ending == sum(isinstance(answer, PoolReceipt) and answer.accepted for answer in answers)
    resources.pool_store.close()


async def test_a_report_is_held_once_at_whichever_shuffler(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=40), sealed_reports(10)
    async with shared.serve_replicas(2) as shufflers:
        uploads = (shuffler.post(header, [report]) for shuffler in shufflers * 3 for report in reports)
        answers = await asyncio.gather(*uploads)
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(202), statuses.count(409)) == (10, 50)
        repeated = await shufflers[0].post(header, [reports[0], *sealed_reports(1)])
        assert repeated.json() == {"accepted": 1, "refused": {"duplicate-report": 1}}
    async with shared.serve_replicas(1) as (restarted,):
        assert_problem(await restarted.post(header, [reports[3]]), 409, "duplicate-report")


async def test_a_participants_messages_are_taken_as_a_whole_or_refused(shared: SharedShufflers) -> None:
    """Four messages a participant, of two kinds: a single message that is held already keeps the other three out."""
    header = shared.server.publish(batch=3, messages=4, groups=2)
    people = [b"".join(sealed_reports(4)) for _ in range(3)]
    async with shared.serve_replicas(2) as (red, blue):
        assert (await red.post(header, [people[0]])).status_code == 202
        mixed = people[1][: 3 * SIZE] + people[0][:SIZE]
        assert_problem(await blue.post(header, [mixed]), 409, "duplicate-report")
        repeated = people[1][:SIZE] * 4
        assert_problem(await blue.post(header, [repeated]), 409, "duplicate-report")
        assert await upload([red, blue], header, people[1:]) == [202, 202]
        await until(lambda: bool(shared.server.delivered))
    kinds = [{message for person in people for message in split_bytes(person, SIZE)[at : at + 2]} for at in (0, 2)]
    received = shared.server.received()
    assert [set(received[:6]), set(received[6:])] == kinds


async def test_a_batch_that_the_server_wants_more_of_takes_nothing_twice(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=10), sealed_reports(25)
    shared.server.insatiable = True
    async with shared.serve_replicas(2) as shufflers:
        assert await upload(shufflers, header, reports[:10]) == [202] * 10
        await until(lambda: len(shared.server.attempts) == 1)
        n_taken = 0
        async with asyncio.timeout(20):
            for at, report in enumerate(reports):  # the first ten again
                while (status := (await shufflers[at % 2].post(header, [report])).status_code) == 503:
                    await asyncio.sleep(0.05)
                n_taken += status == 202
                assert status == (409 if at < 10 else 202)
        await until(lambda: len(shared.server.attempts) == 2)
        assert n_taken == 15
    first, second = (decode_batch(body).sealed for body in shared.server.attempts)
    assert set(split_bytes(first, SIZE)) == set(reports[:10])
    assert set(split_bytes(second, SIZE)) == set(reports[10:20])


async def test_a_round_that_closes_by_its_deadline_is_delivered_once(shared: SharedShufflers) -> None:
    due = int(SystemClock().now()) + 3
    header, reports = shared.server.publish(batch=40, least=5, deadline=due), sealed_reports(7)
    async with shared.serve_replicas(2) as shufflers:
        assert await upload(shufflers, header, reports) == [202] * 7
        await until(lambda: bool(shared.server.delivered))
        await asyncio.sleep(1.5)
        assert sorted(shared.server.received()) == sorted(reports)
        assert len(shared.server.attempts) == 1


async def test_another_replica_delivers_the_same_bytes_after_a_replica_died(shared, monkeypatch):
    """The first replica has delivered and gets no answer; its lease runs out, since it is dead and cannot renew it."""
    monkeypatch.setattr(Leases.__init__, "__defaults__", (1.0,))
    header, reports = shared.server.publish(batch=10), sealed_reports(10)
    shared.server.mute = True
    monkeypatch.setattr("privateer_core.serving.store.leases.Lease._keep_renewing", lambda _: None)
    monkeypatch.setattr("privateer_core.serving.store.leases.Lease.give_back", lambda _: None)
    async with shared.serve_replicas(1) as (first,):
        assert await upload([first], header, reports) == [202] * 10
        await until(lambda: len(shared.server.attempts) == 1)
        async with shared.serve_replicas(1):
            await asyncio.sleep(0.5)
            assert len(shared.server.attempts) == 1  # not while the lease lasts
            await until(lambda: len(shared.server.attempts) >= 2)
            shared.server.mute = False
            await until(lambda: shared.rows("SELECT count(*) FROM rounds") == [(0,)])
    assert len(set(shared.server.attempts)) == 1
    assert shared.rows("SELECT version, over FROM taken") == [(1, True)]


async def test_a_replica_that_never_heard_of_an_experiment_delivers_its_batch(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=10), sealed_reports(10)
    shared.server.busy = 10**6
    async with shared.serve_replicas(1) as (first,):
        assert await upload([first], header, reports) == [202] * 10
        await until(lambda: bool(shared.server.attempts))
    shared.server.busy = 0
    async with shared.serve_replicas(1):
        await until(lambda: bool(shared.server.delivered))
    assert len(set(shared.server.attempts)) == 1


async def test_a_replica_that_is_behind_takes_nothing_for_a_version_that_is_over(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=10), sealed_reports(12)
    async with shared.serve_replicas(2) as (red, blue):
        assert await upload([red, blue], header, reports[:4]) == [202] * 4
        shared.server.publish(version=2, batch=10)
        await until_version(red, blue, version=2)
        assert_problem(await blue.post(header, reports[4:5]), 409, "round-closed")
        following = shared.server.header()
        assert await upload([red, blue], following, reports[:10]) == [202] * 10
        await until(lambda: ("spring", 2) in shared.server.delivered)
        assert ("spring", 1) not in shared.server.delivered
        assert sum([await red.metric("reports_dropped_total"), await blue.metric("reports_dropped_total")]) == 4


async def until_version(*shufflers: Shuffler, version: int) -> None:
    for shuffler in shufflers:
        await shuffler.reaches(version)


async def test_a_database_that_is_away_and_comes_back_loses_nothing(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=20), sealed_reports(20)
    async with shared.serve_replicas(2) as shufflers:
        assert await upload(shufflers, header, reports[:10]) == [202] * 10
        shared.cluster.restart()
        async with asyncio.timeout(30):
            for at, report in enumerate(reports[10:]):
                while (await shufflers[at % 2].post(header, [report])).status_code == 503:
                    await asyncio.sleep(0.05)
        await until(lambda: bool(shared.server.delivered))
        for shuffler in shufflers:
            assert (await shuffler.client.get("/readyz")).status_code == 200
    assert sorted(shared.server.received()) == sorted(reports)


async def test_a_token_is_spent_once_at_whichever_shuffler(postgres: Cluster, tmp_path: Path) -> None:
    shared = SharedShufflers.make(postgres, tmp_path, tokens=tokens(tmp_path / "tokens", "spring"))
    header, token, reports = shared.server.publish(batch=40), minted(), sealed_reports(40)
    async with shared.serve_replicas(2) as shufflers:

        async def report(at: int, sealed: bytes, paid_token: bytes) -> httpx.Response:
            headers, client = {"authorization": authorization(paid_token)}, shufflers[at % 2].client
            url = "/experiments/spring/reports"
            return await client.post(url, content=body_of(header, [sealed]), headers=headers, auth=httpx.Auth())

        answers = await asyncio.gather(*(report(at, sealed, token) for at, sealed in enumerate(reports)))
        statuses = [answer.status_code for answer in answers]
        assert sorted(statuses) == [202] + [401] * 39
        winner = statuses.index(202)
        for at in range(2):
            assert_problem(await report(at, sealed_reports(1)[0], token), 401, "token-spent")
            assert_problem(await report(at, reports[winner], minted()), 409, "duplicate-report")
        # Neither a token nor a nonce is in the database as it came.
        spent_tokens = shared.rows("SELECT token FROM spent")
        assert len(spent_tokens) == 1
        assert bytes(spent_tokens[0][0]) not in token


async def test_the_database_shows_no_message_and_no_place(shared: SharedShufflers) -> None:
    header, reports = shared.server.publish(batch=40), sealed_reports(20)
    async with shared.serve_replicas(2) as shufflers:
        assert await upload(shufflers, header, reports) == [202] * 20
        stored = b"".join(bytes(piece) for (piece,) in shared.rows("SELECT piece FROM pieces"))
        stored += b"".join(bytes(row) for (row,) in shared.rows("SELECT fingerprint FROM fingerprints"))
        assert len(stored) > 20 * SIZE
        assert not any(report[at : at + 12] in stored for report in reports for at in range(0, SIZE - 12, 12))


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE rounds SET ended_at = 1",
        "UPDATE rounds SET ended_at = 1, held = 40; INSERT INTO pieces SELECT * FROM pieces LIMIT 20",
        "UPDATE rounds SET ended_at = 1, held = 40",
        "UPDATE pieces SET piece = piece || '\\x00'; UPDATE rounds SET ended_at = 1, held = 0",
    ],
)
async def test_writes_to_the_database_lead_to_no_smaller_batch(shared: SharedShufflers, harm: str) -> None:
    header, reports = shared.server.publish(batch=40), sealed_reports(20)
    async with shared.serve_replicas(2) as shufflers:
        assert await upload(shufflers, header, reports) == [202] * 20
        shared.rows(harm)
        await asyncio.sleep(2.5)
        assert not shared.server.attempts
        statuses = [(await shuffler.client.get("/readyz")).status_code for shuffler in shufflers]
        assert 503 in statuses


@asynccontextmanager
async def order_of_arrival(shared: SharedShufflers, batches: int) -> AsyncIterator[list[list[int]]]:
    """For batches of five, the place that each report leaves at, in order of arrival."""
    orders = []
    async with shared.serve_replicas(1) as (shuffler,):
        for at in range(batches):
            header, reports = shared.server.publish(f"spring{at}", batch=5), sealed_reports(5)
            for report in reports:
                assert (await shuffler.post(header, [report])).status_code == 202
            await until(lambda at=at: (f"spring{at}", 1) in shared.server.delivered)  # type: ignore[misc]
            received = shared.server.received(f"spring{at}")
            orders.append([received.index(report) for report in reports])
    yield orders


def p_value_of_independence(orders: list[list[int]]) -> float:
    """The p-value of a place being independent of the order of arrival."""
    table = [[sum(places[arrival] == place for places in orders) for place in range(5)] for arrival in range(5)]
    expected = len(orders) / 5
    chi = sum((count - expected) ** 2 / expected for row in table for count in row)
    return float(stats.chi2.sf(chi, 16))


async def test_places_do_not_depend_on_the_order_of_arrival(shared: SharedShufflers) -> None:
    """The false alarm is that of one test; secrets come from the operating system."""
    async with order_of_arrival(shared, 120) as orders:
        assert p_value_of_independence(orders) > FALSE_ALARM


async def test_a_batch_in_order_of_arrival_is_caught(shared: SharedShufflers, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_they_came() -> Iterator[bytes]:
        for at in range(10**6):
            yield at.to_bytes(16)

    numbers = as_they_came()
    honest = shared_store.keyed_hash
    assert honest(b"one", b"k") != honest(b"two", b"k")
    monkeypatch.setattr(shared_store, "keyed_hash", lambda *_: next(numbers))
    async with order_of_arrival(shared, 20) as orders:
        assert p_value_of_independence(orders) < FALSE_ALARM


async def test_a_store_examines_its_tables_and_finds_disagreements(shared: SharedShufflers) -> None:
    header = shared.server.publish(batch=40)
    async with shared.serve_replicas(1) as shufflers:
        assert await upload(shufflers, header, sealed_reports(2)) == [202] * 2
    store = open_resources(shared.settings).pool_store
    examination = store.examine()
    assert examination.disagreements == []
    assert (examination.databases["PostgreSQL"].version, examination.databases["PostgreSQL"].is_whole) == (3, True)
    for harm in (
        "UPDATE taken SET version = 0",
        "UPDATE rounds SET secret = 'x'",
        "INSERT INTO pieces VALUES (77, '')",
        "INSERT INTO fingerprints VALUES ('', 77)",
    ):
        shared.rows(harm)
    assert len(store.examine().disagreements) == 4
    store.close()


def test_replicas_with_other_keys_do_not_start(shared: SharedShufflers, tmp_path: Path) -> None:
    open_resources(shared.settings).pool_store.close()
    other = tmp_path / "other.key"
    load_or_create_key(other, "PRIVATEER_SIGNING_KEY")
    with pytest.raises(SpecError, match="another key"):
        create_app(shared.settings.model_copy(update={"signing_key": other}))
    other.write_bytes(os.urandom(32))
    with pytest.raises(SpecError, match="another key"):
        create_app(shared.settings.model_copy(update={"store_key_file": other}))
