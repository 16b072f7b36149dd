"""Whether a service can write its data, as its last commits and its last probe say."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.serving.logs import trace

_LOOK_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 10.0
"""How long a probe may take; a store that does not answer for so long takes nothing, whatever it does later."""
_MEMORY_SECONDS: Final = 30.0
"""On a disk that is nearly full a probe finds room where the next commit does not. But a balancer sends nothing to a
service that is not ready, so in the end a failure is forgotten."""


def free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's disk; 0 if it is away, so that the alert for a full one fires."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


class LastCommit:
    """Whether the last commit failed, not long ago."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock, self._failed_at = clock or SystemClock(), -_MEMORY_SECONDS

    @property
    def has_failed(self) -> bool:
        """Whether the last commit failed within half a minute."""
        return self._clock.monotonic() < self._failed_at + _MEMORY_SECONDS

    def note(self, *, is_durable: bool) -> None:
        """Take note of a commit."""
        self._failed_at = -_MEMORY_SECONDS if is_durable else self._clock.monotonic()


class WriteHealth:
    """Probes whether data can be written, and takes note of commits. The log tells when that changes.

    So the log tells when the disk failed, and not when somebody sent something that it did not take.

    probe: writes something; it returns False, or raises, if that fails.
    log: of the service.
    """

    def __init__(self, probe: Callable[[], Awaitable[object]], log: logging.Logger, clock: Clock | None = None) -> None:
        self._probe, self._log, self._last = probe, log, LastCommit(clock)
        self._probing: asyncio.Task[str] | None = None
        self._asking, self._failure, self._was_writing = asyncio.Lock(), "", True

    @property
    def is_writing(self) -> bool:
        """Whether the last probe succeeded in time, and so did the last commit, or it is long ago."""
        return not (self._failure or self._last.has_failed)

    def note(self, error: BaseException | None = None) -> None:
        """Take note of a commit, and of what kept it from being durable."""
        self._last.note(is_durable=error is None)
        self._tell(trace(error) if error else "")

    async def check(self) -> bool:
        """Probe once what was begun before has ended, and return whether data can be written."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._asking:
                if self._probing:  # it took too long, and two would take two threads
                    await asyncio.shield(self._probing)
                self._probing = asyncio.create_task(self._find_failure())
                self._failure = await asyncio.shield(self._probing)
                self._probing = None
        except TimeoutError:
            self._failure = f"no answer within {_PATIENCE_SECONDS:g} seconds"
        self._tell(self._failure)
        return self.is_writing

    async def _find_failure(self) -> str:
        try:
            return "" if await self._probe() is not False else "the probe failed"
        except Exception as error:  # whatever it is, nothing is written
            return trace(error)

    def _tell(self, why: str) -> None:
        is_writing = self.is_writing
        if self._was_writing and not is_writing:
            text = "the data cannot be written: make room on the disk, or see to the database; nothing is taken (%s)"
            self._log.error(text, why)
        elif is_writing and not self._was_writing:
            self._log.warning("the data can be written again")
        self._was_writing = is_writing

    async def run(self) -> None:
        """Probe now and then, until the task is cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(_LOOK_SECONDS)
