"""Requests that take too long are broken off, by one thread for all of them."""

import os
from contextlib import suppress
from functools import cache
from heapq import heappop, heappush
from itertools import count
from socket import SHUT_RDWR, socket
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Self


class Watchdog:
    """Breaks a blocking request off when its time is over."""

    # A socket bounds each read alone, so a server that sends a byte now and then would hold it for ever.

    def __init__(self, seconds: float) -> None:
        self.end, self.barked = monotonic() + seconds, False
        self._lock, self._is_over = Lock(), False
        self._connection: socket | None = None

    def watch(self, connection: socket) -> None:
        """Take note of the connection."""
        with self._lock:
            self._connection = connection
            if self.barked:
                self._break_off()

    def bark(self) -> None:
        """Break the request off, unless it is over."""
        with self._lock:
            if not self._is_over:
                self.barked = True
                self._break_off()

    def _break_off(self) -> None:
        with suppress(OSError):  # the server was faster
            if self._connection is not None:
                self._connection.shutdown(SHUT_RDWR)

    def __enter__(self) -> Self:
        _kennel(os.getpid()).take(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True


class _Kennel:
    """One thread that wakes the watchdogs of a process: a thread for each request would take longer than most."""

    def __init__(self) -> None:
        self._waiting, self._changed, self._count = list[tuple[float, int, Watchdog]](), Condition(), count()
        Thread(target=self._run, daemon=True, name="privateer-watchdog").start()

    def take(self, watchdog: Watchdog) -> None:
        """Wake a watchdog at its end."""
        with self._changed:
            heappush(self._waiting, (watchdog.end, next(self._count), watchdog))
            if self._waiting[0][2] is watchdog:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            self._next().bark()

    def _next(self) -> Watchdog:
        with self._changed:
            while not self._waiting or self._waiting[0][0] > monotonic():
                self._changed.wait(self._waiting[0][0] - monotonic() if self._waiting else None)
            return heappop(self._waiting)[2]


@cache
def _kennel(_process: int) -> _Kennel:
    """Return the kennel of a process: one that forks takes no threads along."""
    return _Kennel()
