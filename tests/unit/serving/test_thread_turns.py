"""Threads get turns from an event loop that answers requests without a pause."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from privateer_core.serving import thread_turns
from privateer_core.serving.fair_queue import RequestQueue
from privateer_core.serving.thread_turns import THREAD_TURNS, ThreadTurns

DISK_SECONDS = 0.05
"""How long the thread's work waits without the interpreter's lock, as for a disk."""


async def count_passes() -> int:
    """The passes over a flood of requests while a thread works."""
    queue, passes = RequestQueue(), 0

    def answer() -> None:
        nonlocal passes
        passes += 1
        queue.put("greedy", answer)

    with ThreadPoolExecutor(1) as executor:
        queue.put("greedy", answer)
        working = asyncio.create_task(THREAD_TURNS.run(executor, lambda: time.sleep(DISK_SECONDS)))
        await working
    return passes


async def test_a_flood_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_turns, "_TURN_SECONDS", 60.0)
    assert await count_passes() <= 5
    monkeypatch.setattr(ThreadTurns, "give", lambda _: None)
    assert await count_passes() > 50, "planted: no turns"


async def test_turns_take_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn as soon as a thread has work, and none before requests had as long."""
    turns, clock, waits, released = ThreadTurns(), SimpleNamespace(now=100.0), list[float](), threading.Event()
    monkeypatch.setattr(thread_turns, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(turns._finished, "wait", waits.append)
    turns.give()
    assert waits == [], "nobody works"
    with ThreadPoolExecutor(1) as executor:
        working = asyncio.create_task(turns.run(executor, released.wait))
        await asyncio.sleep(0)
        for clock.now, n_waits in ((100.0, 1), (100.0004, 1), (100.0006, 2), (100.001, 2)):
            turns.give()
            assert len(waits) == n_waits
        released.set()
        await working
    turns.give()
    assert len(waits) == 2, "nobody works any more"
