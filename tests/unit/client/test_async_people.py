"""A client of many participants beside an event loop blocks no task and finds the same participants again."""

import asyncio
import sqlite3
import time as wall
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privateer_client import ReportStatus
from privateer_core.errors import InputError
from tests.support.experiments import CONTEXT, OTHER
from tests.support.processes import PEOPLE, Process


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


async def test_async_sessions_of_one_client_in_two_contexts_are_refused(process: Process) -> None:
    async with process.start_async() as client:
        first, second = await client.join("test"), await client.join("test")
        await first.choose(CONTEXT)
        with pytest.raises(InputError, match=r"client\.person\(key\)"):
            await second.choose(OTHER)


async def _longest_gap(doing: Any) -> float:
    """The longest time that the event loop was not there while something was done."""
    longest, last, task = 0.0, wall.monotonic(), asyncio.ensure_future(doing)
    while not task.done():
        await asyncio.sleep(0.001)
        longest, last = max(longest, wall.monotonic() - last), wall.monotonic()
    await task
    return longest


@pytest.mark.parametrize("is_beside", [True, False])
async def test_a_ledger_that_somebody_writes_holds_no_event_loop(process: Process, is_beside: bool) -> None:
    """Half a second long another process writes; the second case shows that the test would see it."""
    async with process.start_async() as client:
        await client.person("warm").join("test")
        session = await client.person("a").join("test")
        with closing(sqlite3.connect(process.path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            release = asyncio.get_running_loop().run_in_executor(
                None, lambda: (wall.sleep(0.5), other.execute("COMMIT"))
            )

            async def on_the_loop() -> None:
                session._session.choose(CONTEXT)

            gap = await _longest_gap(session.choose(CONTEXT) if is_beside else on_the_loop())
            await release
        assert (gap < 0.25) is is_beside
        assert await client.person("a").report("test", 1.0) is ReportStatus.ACCEPTED


async def test_async_people_are_the_same_people(process: Process) -> None:
    async with process.start_async() as client:
        arms = [await client.person(key).arm("test", CONTEXT, default="d", within=5.0) for key in PEOPLE]
        assert {arm.fallback for arm in arms} == {None}
        assert [await client.person(key).report("test", 1.0) for key in PEOPLE] == [ReportStatus.ACCEPTED] * 40
        assert await client.flush_people() == {}
        await client.person(PEOPLE[0]).forget()
    assert process.start().person(PEOPLE[0]).report("test", 1.0) is ReportStatus.ALREADY_REPORTED
    assert process.server.etags == [None]


async def test_async_people_who_come_at_once_ask_once(process: Process) -> None:
    async with process.start_async() as client:
        sessions = await asyncio.gather(*(client.person(key).join("test") for key in PEOPLE))
        assert all(session.report_requested for session in sessions)
    assert process.server.etags == [None]
