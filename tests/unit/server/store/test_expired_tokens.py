"""What a running server cleans up by itself: spent upload tokens go once their key has long expired."""

import asyncio
import sqlite3
from collections.abc import Callable

import pytest

from privateer_server import data as data_module
from privateer_server.data import Data, open_data
from privateer_server.settings import ServerSettings
from tests.support.clocks import Hands
from tests.support.stores import driver

DAY, HOUR = 86_400.0, 3600.0


@pytest.fixture
def data(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr(data_module, "_CLEAN_SECONDS", 0.005)
    return open_data(settings)


def spend(data: Data, token: bytes, expires: float) -> None:
    with driver(data.store) as database:
        database.execute("INSERT INTO spent_tokens VALUES (?, ?, ?)", (token, b"report", int(expires)))


async def until(is_so: Callable[[], bool]) -> bool:
    """Whether something comes to be so within some seconds."""
    for _ in range(4000):
        if is_so():
            return True
        await asyncio.sleep(0.005)
    return False


async def test_expired_tokens_go_while_the_server_runs(data: Data) -> None:
    clock = Hands()
    begin = clock.now()
    spend(data, b"old", begin - 2 * DAY)
    spend(data, b"young", begin + HOUR)
    cleaning = asyncio.create_task(data.clean(clock))
    try:
        assert await until(lambda: data.store.spent(b"old") is None)
        clock.time = begin + DAY  # its key has expired, and a clock may be wrong by a day
        await asyncio.sleep(0.1)
        assert data.store.spent(b"young") == b"report"
        clock.time = begin + HOUR + DAY + HOUR
        assert await until(lambda: data.store.spent(b"young") is None)
    finally:
        cleaning.cancel()
        await asyncio.wait([cleaning])
        data.close()


async def test_a_disk_that_refuses_is_asked_again(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls, forget = Hands(), list[float](), data.store.forget_tokens

    def refusing(now: float) -> None:
        calls.append(now)
        if len(calls) == 1:
            raise sqlite3.OperationalError("database or disk is full")
        forget(now)

    monkeypatch.setattr(data.store, "forget_tokens", refusing)
    spend(data, b"old", clock.now() - 2 * DAY)
    cleaning = asyncio.create_task(data.clean(clock))
    try:
        assert await until(lambda: len(calls) == 1)
        assert data.store.spent(b"old") == b"report"
        clock.time += HOUR
        assert await until(lambda: data.store.spent(b"old") is None)
        assert not cleaning.done()
    finally:
        cleaning.cancel()
        await asyncio.wait([cleaning])
        data.close()


async def test_it_is_looked_once_an_hour(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = Hands(), list[float]()
    monkeypatch.setattr(data.store, "forget_tokens", calls.append)
    cleaning = asyncio.create_task(data.clean(clock))
    await asyncio.sleep(0.1)
    clock.time += HOUR - 1
    await asyncio.sleep(0.1)
    assert len(calls) == 1
    cleaning.cancel()
    await asyncio.wait([cleaning])
    data.close()
