"""Tokens that were spent are kept until their key has expired, and a day; then the file has nothing of them."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from privateer_core.serving.store.sqlite import SqliteDatabase
from privateer_shuffler.pool import spent_tokens as module
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE, FiledTokens
from tests.support.clocks import Hands

DAY = 86_400


def test_expired_tokens_are_forgotten_without_a_round_that_ends(tmp_path: Path) -> None:
    clock = Hands()
    spent, now = FiledTokens(tmp_path, clock), int(clock.now())
    old, young = spent.hash(b"old"), spent.hash(b"young")
    first, second = now + 10, now + 3 * DAY
    spent.keep([(old, first), (young, second)])
    assert (tmp_path / f"{TOKENS_FILE}-wal").stat().st_size == 0
    clock.time += DAY  # the key has expired, and a clock may be wrong by a day
    assert not spent.forget()
    assert (spent.knows(b"old", first), spent.knows(b"young", second)) == (True, True)
    clock.time += 11
    assert not spent.forget()  # there are no more
    assert (spent.knows(b"old", first), spent.knows(b"young", second)) == (False, True)
    assert not any(old in path.read_bytes() for path in tmp_path.glob(f"{TOKENS_FILE}*"))
    spent.close()


async def test_it_happens_by_itself_and_goes_on_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FORGET_SECONDS", 0.01)
    clock = Hands()
    spent = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    spent.keep([(spent.hash(b"old"), expires)])
    real = spent._database
    broken = SqliteDatabase(sqlite3.connect(":memory:", check_same_thread=False))  # has no such table
    spent._database = broken
    forgetting = asyncio.create_task(spent.forget_now_and_then())
    await asyncio.sleep(0.1)
    assert not forgetting.done()
    spent._database = real
    broken.close()
    async with asyncio.timeout(20):
        while spent.knows(b"old", expires):
            await asyncio.sleep(0.01)
    forgetting.cancel()
    await asyncio.wait([forgetting])
    spent.close()


def test_many_go_in_slices(tmp_path: Path) -> None:
    clock = Hands()
    spent = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    spent.keep((number.to_bytes(16, "big"), expires) for number in range(6000))
    assert (spent.forget(), spent.forget()) == (True, False)
    assert not spent.has((5999).to_bytes(16, "big"), expires)
    spent.close()
