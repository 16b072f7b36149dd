"""Turns of threads between requests, so that a busy event loop does not delay what people wait for."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")
_TURN_SECONDS: Final = 0.0005
_LOOP_SECONDS: Final = 0.0005
"""Time of requests between two turns, so that waiting takes half of the event loop's time at most."""


class ThreadTurns:
    """The threads whose results requests wait for.

    While requests are answered, the event loop gives the interpreter's lock up for microseconds only. A thread that
    wants it, to begin or to go on after the disk, gets it by chance, and waits ten times as long as the disk takes.
    """

    def __init__(self) -> None:
        self._n_running, self._finished, self._next_turn = 0, threading.Event(), 0.0

    async def run(self, executor: Executor, work: Callable[[], T]) -> T:
        """Run work in a thread, which gets a turn at once, and return its result."""
        self._n_running, self._next_turn = self._n_running + 1, 0.0
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, partial(self._work, work))
        finally:
            self._n_running -= 1

    def _work(self, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._finished.set()

    def give(self) -> None:
        """Wait for a thread for a moment, if one works and the last turn is long ago."""
        if self._n_running and time.perf_counter() >= self._next_turn:
            self._finished.clear()
            self._finished.wait(_TURN_SECONDS)
            self._next_turn = time.perf_counter() + _LOOP_SECONDS


THREAD_TURNS: Final = ThreadTurns()
"""Those of this process."""
