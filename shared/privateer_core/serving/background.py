"""Work that goes on between requests."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

_AGAIN_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


class Background:
    """Tasks that run until they are done or the service stops.

    Attributes
    ----------
    failed
        Whether a task let an exception through. That is a defect: the service is not healthy any more.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    async def stop(self) -> None:
        """Cancel all tasks and wait for them to end."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            # Once is not enough: Python 3.11's wait_for forgets a cancellation that comes with what it waits for.
            await asyncio.wait(self._tasks, timeout=_AGAIN_SECONDS)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed = True
            _log.error("a background task ended with %s; restart the service", type(error).__name__, exc_info=error)
