"""What a running server cleans up by itself: spent upload tokens go once their key has long expired."""

import asyncio
import itertools
import sqlite3
from collections.abc import Callable

import pytest

from privateer_server import data as data_module
from privateer_server.data import Data, open_data
from privateer_server.settings import ServerSettings
from privateer_server.store.records import Leaf, LogLine
from tests.support.clocks import Hands
from tests.support.stores import driver

DAY, HOUR = 86_400.0, 3600.0


@pytest.fixture
def data(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr(data_module, "_CLEANUP_INTERVAL_SECONDS", 0.005)
    return open_data(settings)


def spend(data: Data, token: bytes, expires: float) -> None:
    with driver(data.store) as database:
        database.execute("INSERT INTO spent_tokens VALUES (?, ?, ?)", (int(expires), token, b"report"))


async def becomes_true(is_so: Callable[[], bool]) -> bool:
    """Whether something comes to be so within some seconds."""
    for _ in range(4000):
        if is_so():
            return True
        await asyncio.sleep(0.005)
    return False


async def test_expired_tokens_are_deleted_while_the_server_runs(data: Data) -> None:
    clock = Hands()
    begin = clock.now()
    old, young = int(begin - 2 * DAY), int(begin + HOUR)
    spend(data, b"old", begin - 2 * DAY)
    spend(data, b"young", begin + HOUR)
    cleaning = asyncio.create_task(data.erase_obsolete_data(clock))
    try:
        assert await becomes_true(lambda: data.store.find_token_report(old, b"old") is None)
        clock.time = begin + DAY  # its key has expired, and a clock may be wrong by a day
        await asyncio.sleep(0.1)
        assert data.store.find_token_report(young, b"young") == b"report"
        clock.time = begin + HOUR + DAY + HOUR
        assert await becomes_true(lambda: data.store.find_token_report(young, b"young") is None)
    finally:
        cleaning.cancel()
        await asyncio.wait([cleaning])
        data.close()


async def test_a_failed_cleanup_is_tried_again(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls, forget = Hands(), list[float](), data.store.delete_some_expired_tokens
    old = int(clock.now() - 2 * DAY)

    def refusing(now: float) -> bool:
        calls.append(now)
        if len(calls) == 1:
            raise sqlite3.OperationalError("database or disk is full")
        return forget(now)

    monkeypatch.setattr(data.store, "delete_some_expired_tokens", refusing)
    spend(data, b"old", old)
    cleaning = asyncio.create_task(data.erase_obsolete_data(clock))
    try:
        assert await becomes_true(lambda: len(calls) == 1)
        assert data.store.find_token_report(old, b"old") == b"report"
        clock.time += HOUR
        assert await becomes_true(lambda: data.store.find_token_report(old, b"old") is None)
        assert not cleaning.done()
    finally:
        cleaning.cancel()
        await asyncio.wait([cleaning])
        data.close()


async def test_the_cleanup_runs_once_an_hour(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Hands(), list[float]()
    monkeypatch.setattr(data.store, "delete_some_expired_tokens", calls.append)
    cleaning = asyncio.create_task(data.erase_obsolete_data(clock))
    await asyncio.sleep(0.1)
    clock.time += HOUR - 1
    await asyncio.sleep(0.1)
    assert len(calls) == 1
    cleaning.cancel()
    await asyncio.wait([cleaning])
    data.close()


@pytest.mark.parametrize("n_tokens", [12_000, 48_000])
def test_a_slice_of_the_tokens_of_one_key_costs_the_same_whatever_their_number(data: Data, n_tokens: int) -> None:
    """A slice takes 75,000 instructions of SQLite. A comparison with a list of its tokens took 522,000 among 48,000."""
    clock, slices, steps = Hands(), list[int](), itertools.count()
    expires = int(clock.now() - 2 * DAY)

    def count_tokens() -> int:
        with driver(data.store) as database:
            return int(database.execute("SELECT count(*) FROM spent_tokens").fetchone()[0])

    with driver(data.store) as database:
        rows = ((expires, number.to_bytes(12, "big"), b"last") for number in range(n_tokens))
        database.execute("BEGIN")
        database.executemany("INSERT INTO spent_tokens VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")
        database.set_progress_handler(lambda: next(steps) < 0, 1000)
    has_more = data.store.delete_some_expired_tokens(clock.now())
    thousands_of_instructions = next(steps)
    assert has_more
    while has_more:
        slices.append(count_tokens())
        has_more = data.store.delete_some_expired_tokens(clock.now())
    assert (slices, count_tokens()) == (list(range(n_tokens - 5000, 0, -5000)), 0)
    assert 20 < thousands_of_instructions < 200, thousands_of_instructions
    data.close()


async def test_the_logs_of_database_and_journal_are_emptied_while_the_server_runs(data, settings):
    line = LogLine(1.0, "delete", "a detail that was written", "admin", 1)
    logs = [settings.data / f"{name}-wal" for name in ("server.db", "journal.db")]
    cleaning = asyncio.create_task(data.erase_obsolete_data(Hands()))
    for number in range(3):
        data.store.delete(f"experiment-{number}", line)
        data.journal.extend_log("origin", number, [Leaf("test", number, b"digest")])
        assert await becomes_true(lambda: not any(log.stat().st_size for log in logs))
    cleaning.cancel()
    await asyncio.wait([cleaning])
    data.close()
