"""Watchdogs that abort requests after a deadline, with a single thread for all requests of a process."""

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
    """A watchdog that aborts a blocking request at its deadline."""

    # A socket's timeout applies to each read, so a server that sends single bytes could delay a request for ever.

    def __init__(self, seconds: float) -> None:
        self.end, self.has_expired = monotonic() + seconds, False
        self._lock, self.is_over = Lock(), False
        self._connection: socket | None = None

    def watch(self, connection: socket) -> None:
        """Set the connection to abort, and abort it if the deadline has passed."""
        with self._lock:
            self._connection = connection
            if self.has_expired:
                self._abort()

    def expire(self) -> None:
        """Abort the request, unless it is over."""
        with self._lock:
            if not self.is_over:
                self.has_expired = True
                self._abort()

    def _abort(self) -> None:
        with suppress(OSError):  # the server closed it first
            if self._connection is not None:
                self._connection.shutdown(SHUT_RDWR)

    def __enter__(self) -> Self:
        _watchdog_thread(os.getpid()).add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.is_over = True


class _WatchdogThread:
    """The thread that expires the watchdogs of a process; a thread for each request would be slow."""

    def __init__(self) -> None:
        self._queue, self._changed, self._count = list[tuple[float, int, Watchdog]](), Condition(), count()
        self._is_ending = False
        Thread(target=self._run, daemon=True, name="privateer-watchdog").start()

    def add(self, watchdog: Watchdog) -> None:
        """Expire a watchdog at its deadline."""
        with self._changed:
            heappush(self._queue, (watchdog.end, next(self._count), watchdog))
            if self._queue[0][2] is watchdog:
                self._changed.notify()
            is_ending = self._is_ending
        if is_ending:
            watchdog.expire()

    def abort_all(self) -> None:
        """Break all requests off, and those that begin from now on."""
        with self._changed:
            self._is_ending = True
            watchdogs = [watchdog for _, _, watchdog in self._queue]
        for watchdog in watchdogs:
            watchdog.expire()

    def _run(self) -> None:
        while True:
            self._await_expired().expire()

    def _await_expired(self) -> Watchdog:
        """Wait for the next deadline, and return its watchdog."""
        with self._changed:
            while not self._queue or self._queue[0][0] > monotonic():
                while self._queue and self._queue[0][2].is_over:
                    heappop(self._queue)
                self._changed.wait(self._queue[0][0] - monotonic() if self._queue else None)
            return heappop(self._queue)[2]


@cache
def _watchdog_thread(_process: int) -> _WatchdogThread:
    """Return the watchdog thread of a process, since a forked process has no threads."""
    return _WatchdogThread()


def abort_requests() -> None:
    """Break off all requests of this process, because it ends."""
    _watchdog_thread(os.getpid()).abort_all()
