"""Spent tokens are kept until a day after the expiry of their key, and then erased from the file."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from privateer_core.serving.store.database import SqliteDatabase
from privateer_shuffler.pool import spent_tokens as module
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE, FiledTokens
from tests.support.clocks import Hands

DAY = 86_400


def test_expired_tokens_are_erased_while_the_round_is_open(tmp_path: Path) -> None:
    clock = Hands()
    filed_tokens, now = FiledTokens(tmp_path, clock), int(clock.now())
    old, young = filed_tokens.hash(b"old"), filed_tokens.hash(b"young")
    first, second = now + 10, now + 3 * DAY
    filed_tokens.store([(old, first), (young, second)])
    assert (tmp_path / f"{TOKENS_FILE}-wal").stat().st_size == 0
    clock.time += DAY  # the key has expired, and a clock may be wrong by a day
    assert not filed_tokens.delete_some_expired()
    assert (filed_tokens.is_known_spent(b"old", first), filed_tokens.is_known_spent(b"young", second)) == (True, True)
    clock.time += 11
    assert not filed_tokens.delete_some_expired()  # there are no more
    assert (filed_tokens.is_known_spent(b"old", first), filed_tokens.is_known_spent(b"young", second)) == (False, True)
    assert not any(old in path.read_bytes() for path in tmp_path.glob(f"{TOKENS_FILE}*"))
    filed_tokens.close()


async def test_expired_tokens_are_erased_in_the_background_also_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FORGET_SECONDS", 0.01)
    clock = Hands()
    filed_tokens = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    filed_tokens.store([(filed_tokens.hash(b"old"), expires)])
    real = filed_tokens._database
    broken = SqliteDatabase(sqlite3.connect(":memory:", check_same_thread=False))  # has no such table
    filed_tokens._database = broken
    forgetting = asyncio.create_task(filed_tokens.delete_expired_periodically())
    await asyncio.sleep(0.1)
    assert not forgetting.done()
    filed_tokens._database = real
    broken.close()
    async with asyncio.timeout(20):
        while filed_tokens.is_known_spent(b"old", expires):
            await asyncio.sleep(0.01)
    forgetting.cancel()
    await asyncio.wait([forgetting])
    filed_tokens.close()


def test_many_expired_tokens_are_deleted_in_slices(tmp_path: Path) -> None:
    clock = Hands()
    filed_tokens = FiledTokens(tmp_path, clock)
    expires = int(clock.now()) - 2 * DAY
    filed_tokens.store((number.to_bytes(16, "big"), expires) for number in range(6000))
    assert (filed_tokens.delete_some_expired(), filed_tokens.delete_some_expired()) == (True, False)
    assert not filed_tokens.is_spent((5999).to_bytes(16, "big"), expires)
    filed_tokens.close()
