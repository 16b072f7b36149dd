"""A service says once that its data cannot be written, and once that they can be again."""

import asyncio
import logging

import pytest

from privateer_core.serving.store import sqlite
from privateer_core.serving.store.sqlite import watch_disk
from tests.unit.shuffler.helpers import until


async def test_the_log_tells_changes_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sqlite, "_LOOK_SECONDS", 0.0)
    looks = [True, True, False, False, False, True, True]
    left = list(looks)

    async def is_writable() -> bool:
        return left.pop(0) if left else True

    watching = asyncio.create_task(watch_disk(is_writable, logging.getLogger("privateer.shuffler")))
    await until(lambda: not left)
    watching.cancel()
    failed, again = caplog.records
    assert (failed.levelname, failed.getMessage().partition(":")[0]) == ("ERROR", "the data cannot be written")
    assert (again.levelname, again.getMessage()) == ("WARNING", "the data can be written again")
