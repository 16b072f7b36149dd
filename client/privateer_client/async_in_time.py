"""Sessions that are there in time, for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from privateer_client.in_time import LASTS, SERVERS_SHARE
from privateer_client.session import Session
from privateer_core.errors import PrivateerError


class AsyncSessionsInTime:
    """Joins each experiment beside, as `SessionsInTime` does."""

    def __init__(
        self, join: Callable[[str], Awaitable[Session[Any]]], kept: Callable[[str], Awaitable[Session[Any] | None]]
    ) -> None:
        self._join, self._kept = join, kept
        self._going: dict[str, tuple[float, asyncio.Future[Session[Any]]]] = {}
        self._here: dict[str, Session[Any]] = {}

    async def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is none after so many seconds since it was first asked for."""
        began, going = self._going.get(name, (0.0, None))
        is_old = going is not None and going.done() and (_has_failed(going) or monotonic() - began > LASTS)
        if going is None or is_old or going.get_loop() is not asyncio.get_running_loop():
            began, going = monotonic(), asyncio.ensure_future(self._join(name))
            going.add_done_callback(_has_failed)  # nobody may be left who would see an error
            self._going[name] = (began, going)
        await asyncio.wait({going}, timeout=max(0.0, began + SERVERS_SHARE * seconds - monotonic()))
        if going.done():
            self._here[name] = going.result()
        elif name not in self._here:
            with suppress(PrivateerError):
                kept = await self._kept(name)
                if kept is not None:
                    self._here[name] = kept
        return self._here.get(name)


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.cancelled() or future.exception() is not None
