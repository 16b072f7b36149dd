import asyncio
import sqlite3
import threading

import pytest
from scipy import stats

from privateer_core.errors import DuplicateReport, Unavailable
from privateer_core.wire.batch import decode_batch
from privateer_core.wire.publication import decode_envelope, split_bytes
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import _GATHER_SECONDS, _MIN_SHARED_UPLOADS
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.shuffle import RandomBelow
from tests.support.statistics import FALSE_ALARM
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import pool_of, sealed_reports, until


def database(folder) -> bytes:
    (path,) = folder.glob("*.db")
    return path.read_bytes()


def log(folder) -> bytes:
    (path,) = folder.glob("*.db-wal")
    return path.read_bytes()


def reload(folder):
    (path,) = folder.glob("*.db")
    return pool_of(RoundStore.load(path))


async def fill(pool, reports, at_once=1):
    for start in range(0, len(reports), at_once):
        await pool.hold(reports[start : start + at_once])


async def wait_for_empty_log(folder):
    """Wait until the write-ahead log is empty."""
    await until(lambda: log(folder) == b"")


async def test_accepted_reports_are_on_disk(new_store, tmp_path):
    pool, reports = pool_of(new_store(5)), sealed_reports(3)
    assert (await pool.hold(reports)).accepted == 3
    raw = database(tmp_path) + log(tmp_path)
    assert all(report in raw for report in reports)
    await pool.close()


async def test_nothing_is_acknowledged_before_it_is_durable(new_store, monkeypatch):
    store, disk = new_store(5), threading.Event()
    commit = store.commit
    monkeypatch.setattr(store, "commit", lambda: (disk.wait(20), commit()))
    pool, (report,) = pool_of(store), sealed_reports(1)
    first = asyncio.ensure_future(pool.hold([report]))
    repeated = asyncio.ensure_future(pool.hold([report]))
    await asyncio.sleep(0.2)
    assert not first.done()
    assert not repeated.done()  # "held already" is a promise, too
    disk.set()
    assert (await first).accepted == 1
    assert (await repeated).refused == {"duplicate-report": 1}
    await pool.close()


async def test_requests_share_commits(new_store, monkeypatch):
    store, commits = new_store(1000), []
    commit = store.commit
    monkeypatch.setattr(store, "commit", lambda: (commits.append(1), commit()))
    pool = pool_of(store)
    receipts = await asyncio.gather(*(pool.hold([report]) for report in sealed_reports(500)))
    assert sum(receipt.accepted for receipt in receipts) == 500
    assert len(commits) <= 3
    await pool.close()


async def count_commits(store, monkeypatch, at_once):
    """Commits of so many requests at once and of two more, the second of which comes before a gathering ends."""
    commits, commit, sleep = [], store.commit, asyncio.sleep
    gathering, event = asyncio.Event(), asyncio.Event()

    async def gather(seconds):
        if seconds != _GATHER_SECONDS:
            return await sleep(seconds)
        gathering.set()
        return await event.wait()

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", gather)
        patch.setattr(store, "commit", lambda: (commits.append(1), commit()))
        pool = pool_of(store)
        await asyncio.gather(*(pool.hold([report]) for report in sealed_reports(at_once)))
        first, waits = pool.hold(sealed_reports(1)), asyncio.ensure_future(gathering.wait())
        await asyncio.wait({first, waits}, return_when=asyncio.FIRST_COMPLETED)
        second = pool.hold(sealed_reports(1))
        event.set()
        assert [(await receipt).accepted for receipt in (first, second)] == [1, 1]
        waits.cancel()
        await pool.close()
    return len(commits)


async def test_requests_share_commits_under_load(new_store, monkeypatch, tmp_path):
    """After a shared commit the next requests wait to share theirs, until a few commits had a single request."""
    (tmp_path / "few").mkdir()
    assert await count_commits(new_store(1000), monkeypatch, _MIN_SHARED_UPLOADS) == 2
    assert await count_commits(new_store(1000, tmp_path / "few"), monkeypatch, _MIN_SHARED_UPLOADS - 1) == 3


async def test_unshared_commits_are_caught(new_store, monkeypatch):
    monkeypatch.setattr("privateer_shuffler.pool.pool._MIN_SHARED_UPLOADS", 1000)
    assert await count_commits(new_store(1000), monkeypatch, 8) == 3


async def test_a_pool_accepts_exactly_its_batch(new_store):
    pool, reports = pool_of(new_store(5)), sealed_reports(9)
    await pool.hold(reports[:3])
    receipt = await pool.hold(reports[3:])
    assert (receipt.accepted, receipt.refused) == (2, {"unavailable": 4})
    assert isinstance(receipt.first_refusal, Unavailable)
    assert pool.is_full
    await pool.filled.wait()
    envelope = decode_batch(await pool.read_batch())
    assert envelope.header == pool.header
    assert sorted(envelope.sealed[i : i + SIZE] for i in range(0, 5 * SIZE, SIZE)) == sorted(reports[:5])
    await pool.close()


async def test_the_same_bytes_are_held_once(new_store):
    pool, reports = pool_of(new_store(5)), sealed_reports(2)
    receipt = await pool.hold([reports[0], reports[0], reports[1]])
    assert (receipt.accepted, receipt.refused) == (2, {"duplicate-report": 1})
    assert isinstance(receipt.first_refusal, DuplicateReport)
    assert (await pool.hold(reports)).refused == {"duplicate-report": 2}
    assert pool.n_held == 2
    await pool.close()


async def test_a_restart_keeps_reports_and_their_places(new_store, tmp_path):
    pool, reports = pool_of(new_store(5)), sealed_reports(5)
    await pool.hold(reports[:3])
    await pool.close()
    pool = reload(tmp_path)
    assert pool.n_held == 3
    assert (await pool.hold(reports)).refused == {"duplicate-report": 3}
    batch = await pool.read_batch()
    await pool.close()
    pool = reload(tmp_path)
    assert pool.filled.is_set()
    assert await pool.read_batch() == batch
    assert sorted(decode_envelope(batch).sealed[i : i + SIZE] for i in range(0, 5 * SIZE, SIZE)) == sorted(reports)
    await pool.close()


async def test_an_erased_pool_accepts_no_report(new_store, tmp_path):
    pool, reports = pool_of(new_store(5)), sealed_reports(5)
    await pool.hold(reports[:3])
    await pool.forget()
    assert (await pool.hold(reports)).refused == {"unavailable": 5}
    assert (pool.n_held, pool.is_full) == (0, True)
    assert list(tmp_path.iterdir()) == []


def fail():
    raise sqlite3.OperationalError("disk I/O error")


async def test_reports_of_a_failed_commit_are_rolled_back(new_store, tmp_path, monkeypatch):
    store, reports = new_store(5), sealed_reports(5)
    pool = pool_of(store)
    await pool.hold(reports[:1])
    with monkeypatch.context() as broken:
        broken.setattr(store, "commit", fail)
        for task in [pool.hold([report]) for report in reports[1:]]:
            with pytest.raises(Unavailable):
                await task
    assert (pool.last_commit.has_failed, pool.n_held, pool.is_full) == (True, 1, False)
    assert (await pool.hold(reports[1:])).accepted == 4  # the disk has room again: the same bytes, in other places
    assert (pool.last_commit.has_failed, pool.is_full) == (False, True)
    batch = await pool.read_batch()
    await pool.close()
    pool = reload(tmp_path)
    assert await pool.read_batch() == batch
    assert sorted(split_bytes(decode_batch(batch).sealed, SIZE)) == sorted(reports)
    await pool.close()


async def test_a_disk_that_cannot_undo_stops_the_pool(new_store, tmp_path, monkeypatch):
    store, reports = new_store(5), sealed_reports(2)
    pool = pool_of(store)
    with monkeypatch.context() as broken:
        broken.setattr(store, "commit", fail)
        broken.setattr(store, "rollback", fail)
        with pytest.raises(Unavailable):
            await pool.hold(reports[:1])
    with pytest.raises(Unavailable):
        await pool.hold(reports[1:])
    await pool.close()
    pool = reload(tmp_path)
    assert pool.n_held == 0
    await pool.close()


async def test_the_write_ahead_log_is_emptied_after_a_disk_failure(new_store, tmp_path, monkeypatch):
    monkeypatch.setattr("privateer_shuffler.pool.pool._FULL_DISK_SECONDS", 0.01)
    store = new_store(50)
    pool, attempts = pool_of(store), []
    with monkeypatch.context() as broken:
        broken.setattr(store, "truncate_log", lambda: (attempts.append(1), fail()))
        await pool.hold(sealed_reports(1))
        await until(lambda: len(attempts) > 1)
        assert log(tmp_path) != b""
    await wait_for_empty_log(tmp_path)
    await pool.close()


async def test_a_cancelled_upload_does_not_affect_others(new_store):
    pool, reports = pool_of(new_store(5)), sealed_reports(3)
    tasks = [asyncio.ensure_future(pool.hold([report])) for report in reports]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(result, "accepted", None) for result in results] == [1, None, 1]
    assert pool.n_held == 3
    await pool.close()


# What the files tell about the order of arrival: nothing.


async def test_the_database_is_the_same_whatever_the_order_of_arrival(new_store, tmp_path, monkeypatch):
    """Given its place, neither the position of a report in the file nor anything beside it depends on when it came."""
    monkeypatch.setattr("privateer_shuffler.pool.round_file.secrets.token_bytes", bytes)  # the key differs anyhow
    reports = sealed_reports(50)
    contents = []
    for order, at_once in ((list(range(50)), 1), (list(reversed(range(50))), 7)):
        folder = tmp_path / str(at_once)
        folder.mkdir()
        free = list(range(50))
        targets = iter(order)

        def choose_place(count, free=free, targets=targets):  # as Places does it: the last free place fills the gap
            index = free.index(next(targets))
            free[index], free[-1] = free[-1], free[index]
            free.pop()
            return index

        pool = pool_of(new_store(50, folder), choose_place)
        await fill(pool, [reports[place] for place in order], at_once)
        await wait_for_empty_log(folder)
        contents.append(database(folder))
        await pool.close()
    assert all(report in contents[0] for report in reports)
    assert contents[0] == contents[1]


async def rank_correlation(pool, folder) -> float:
    """p-value of the correlation between arrival and position in the raw file."""
    reports = sealed_reports(300)
    await fill(pool, reports, 3)
    await wait_for_empty_log(folder)
    raw = database(folder)
    positions = [raw.find(report) for report in reports]
    assert -1 not in positions
    return float(stats.spearmanr(range(300), positions).pvalue)


async def test_positions_in_the_file_do_not_follow_arrival(new_store, tmp_path):
    """False-alarm rate 1e-6: the operating system's randomness has no seed."""
    pool = pool_of(new_store(400))
    assert await rank_correlation(pool, tmp_path) > FALSE_ALARM
    await pool.close()


async def test_an_unshuffled_pool_is_caught(new_store, tmp_path):
    pool = pool_of(new_store(400), lambda free: free - 1)
    assert await rank_correlation(pool, tmp_path) < FALSE_ALARM
    await pool.close()


async def test_the_log_is_emptied_when_nothing_arrives(new_store, tmp_path):
    pool = pool_of(new_store(50))
    await fill(pool, sealed_reports(10))
    assert log(tmp_path) != b""
    await wait_for_empty_log(tmp_path)
    await fill(pool, sealed_reports(1))
    assert log(tmp_path) != b""
    await wait_for_empty_log(tmp_path)
    await pool.close()


async def test_the_order_goes_on_at_random_after_a_restart(new_store, tmp_path):
    """The places that were free before a restart are drawn uniformly after it; false-alarm rate 1e-6."""
    last_places = []
    for attempt in range(60):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        pool = pool_of(new_store(3, folder), lambda _: 0)
        await pool.hold(sealed_reports(1))
        await pool.close()
        pool, reports = reload(folder), sealed_reports(2)
        await fill(pool, reports)
        sealed = decode_batch(await pool.read_batch()).sealed
        last_places.append(sealed.find(reports[0]) < sealed.find(reports[1]))
        await pool.forget()
    assert stats.binomtest(sum(last_places), 60).pvalue > FALSE_ALARM


async def test_the_default_source_is_the_operating_system(new_store):
    assert PlacedRound.__init__.__defaults__ == (None, None, None)
    placed = PlacedRound(new_store(5))
    assert isinstance(placed._below, RandomBelow)
    placed.close()
