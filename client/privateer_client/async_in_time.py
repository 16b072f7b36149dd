"""Sessions with a time limit, for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from privateer_client.in_time import SERVER_TIME_SHARE, SESSION_SECONDS
from privateer_client.session import Session
from privateer_core.errors import PrivateerError


class AsyncSessionsInTime:
    """Sessions by experiment, which are joined in the background, as `SessionsInTime`."""

    def __init__(
        self,
        join: Callable[[str], Awaitable[Session[Any]]],
        load_stored: Callable[[str], Awaitable[Session[Any] | None]],
    ) -> None:
        self._join, self._load_stored = join, load_stored
        self._joins: dict[str, tuple[float, asyncio.Future[Session[Any]]]] = {}
        self._sessions: dict[str, Session[Any]] = {}

    async def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is no session ``seconds`` after the start of the join."""
        began, future = self._joins.get(name, (0.0, None))
        is_old = future is not None and future.done() and (_has_failed(future) or monotonic() - began > SESSION_SECONDS)
        if future is None or is_old or future.get_loop() is not asyncio.get_running_loop():
            began, future = monotonic(), asyncio.ensure_future(self._join_session(name))
            future.add_done_callback(_has_failed)  # retrieves an exception that may be awaited nowhere
            self._joins[name] = (began, future)
        await asyncio.wait({future}, timeout=max(0.0, began + SERVER_TIME_SHARE * seconds - monotonic()))
        return future.result() if future.done() else self._sessions.get(name)

    async def _join_session(self, name: str) -> Session[Any]:
        """Join an experiment, and store its session; until then, store the session of the stored publication."""
        if name not in self._sessions:
            with suppress(PrivateerError):
                stored = await self._load_stored(name)
                if stored is not None:
                    self._sessions[name] = stored
        session = self._sessions[name] = await self._join(name)
        return session


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.cancelled() or future.exception() is not None
