"""Health of a service's storage, from its last commits and its last probe."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.logs import trace

_PROBE_INTERVAL_SECONDS: Final = 10.0
_PROBE_TIMEOUT_SECONDS: Final = 10.0
"""Longest time of a probe. A store that does not answer within this time counts as failed."""
_FAILURE_MEMORY_SECONDS: Final = 30.0
"""Time for which a failed commit counts, since on a nearly full disk a probe may succeed where the next commit fails.
It is bounded, since a load balancer sends no requests, and so no commits, to a service that is not ready."""


def free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's disk; 0 if it is missing, so that the alert for a full disk fires."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


class LastCommit:
    """The outcome of the last commit."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock, self._failed_at = clock or SystemClock(), -_FAILURE_MEMORY_SECONDS

    @property
    def has_failed(self) -> bool:
        """Whether the last commit failed within half a minute."""
        return self._clock.monotonic() < self._failed_at + _FAILURE_MEMORY_SECONDS

    def record(self, *, is_durable: bool) -> None:
        """Record the outcome of a commit."""
        self._failed_at = -_FAILURE_MEMORY_SECONDS if is_durable else self._clock.monotonic()


class WriteHealth:
    """The health of a store, from probes and commits. Changes are logged.

    So the log has the time when the disk failed, and not one line for each failed request.

    probe: writes a probe; returns False or raises if that fails.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], log: logging.Logger, clock: Clock | None = None) -> None:
        self._probe, self._log, self._last_commit = probe, log, LastCommit(clock)
        self._probe_task: asyncio.Task[str] | None = None
        self._probe_lock, self._failure, self._was_writing = asyncio.Lock(), "", True

    @property
    def is_writing(self) -> bool:
        """Whether the last probe succeeded in time, and the last commit did not fail within half a minute."""
        return not (self._failure or self._last_commit.has_failed)

    def record_commit(self, error: BaseException | None = None) -> None:
        """Record a commit, with the error if it is not durable."""
        self._last_commit.record(is_durable=error is None)
        self._log_change(trace(error) if error else "")

    async def check(self) -> bool:
        """Wait for an earlier probe, probe the store, and return whether data can be written."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS), self._probe_lock:
                if self._probe_task:  # it took too long, and two would take two threads
                    await asyncio.shield(self._probe_task)
                self._probe_task = asyncio.create_task(self._find_failure())
                self._failure = await asyncio.shield(self._probe_task)
                self._probe_task = None
        except TimeoutError:
            self._failure = f"no answer within {_PROBE_TIMEOUT_SECONDS:g} seconds"
        self._log_change(self._failure)
        return self.is_writing

    async def _find_failure(self) -> str:
        """Probe the store, and return why that failed; empty if data can be written."""
        try:
            return "" if await self._probe() is not False else "the probe failed"
        except Exception as error:  # whatever it is, nothing is written
            return trace(error)

    def _log_change(self, reason: str) -> None:
        """Log that data cannot be written any more, or that they can again."""
        is_writing = self.is_writing
        if self._was_writing and not is_writing:
            message = "the data cannot be written: make room on the disk, or see to the database; nothing is taken (%s)"
            self._log.error(message, reason)
        elif is_writing and not self._was_writing:
            self._log.warning("the data can be written again")
        self._was_writing = is_writing

    async def run(self) -> None:
        """Probe regularly until the task is cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(_PROBE_INTERVAL_SECONDS)
