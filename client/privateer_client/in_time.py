"""Sessions that are there in time: a server that takes its time holds nobody, and its answer serves the next page."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from privateer_client.session import Session
from privateer_core.errors import PrivateerError

_Result = TypeVar("_Result")
_LASTS: Final = 60.0
"""Seconds after which an experiment is joined anew."""
_SERVERS_SHARE: Final = 0.9
"""Of the time that there is; the rest is for the choice, here."""


class Beside(Generic[_Result]):
    """What a thread of its own does, so that nobody has to wait for its end."""

    # A pool would be waited for when the process ends.

    def __init__(self, work: Callable[[], _Result]) -> None:
        self.began, self._done = monotonic(), Event()
        self._result: _Result | None = None
        self._error: BaseException | None = None
        Thread(target=self._run, args=(work,), daemon=True, name="privateer-beside").start()

    def _run(self, work: Callable[[], _Result]) -> None:
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
        self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without a result."""
        return self._error is not None

    def result(self, end: float) -> _Result | None:
        """Return what it returns, or raise what it raises; None if it has not ended by ``end``."""
        if not self._done.wait(max(0.0, end - monotonic())):
            return None
        if self._error is not None:
            raise self._error
        return self._result


class SessionsInTime:
    """Joins each experiment beside, once at a time; until a session is there, what the device keeps has to do.

    join: joins an experiment.
    kept: returns a session by the publication that the device keeps, None without one.
    """

    def __init__(self, join: Callable[[str], Session[Any]], kept: Callable[[str], Session[Any] | None]) -> None:
        self._join, self._kept, self._lock = join, kept, Lock()
        self._going: dict[str, Beside[Session[Any]]] = {}
        self._here: dict[str, Session[Any]] = {}

    def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is none after so many seconds since it was first asked for."""
        with self._lock:
            going = self._going.get(name)
            is_old = going is not None and going.is_done and (going.has_failed or monotonic() - going.began > _LASTS)
            if going is None or is_old:
                going = self._going[name] = Beside(lambda: self._joined(name))
        return going.result(going.began + _SERVERS_SHARE * seconds) or self._here.get(name)

    def _joined(self, name: str) -> Session[Any]:
        if name not in self._here:
            with suppress(PrivateerError):
                kept = self._kept(name)
                if kept is not None:
                    self._here[name] = kept
        session = self._here[name] = self._join(name)
        return session


class AsyncSessionsInTime:
    """The same for asyncio."""

    def __init__(
        self, join: Callable[[str], Awaitable[Session[Any]]], kept: Callable[[str], Session[Any] | None]
    ) -> None:
        self._join, self._kept = join, kept
        self._going: dict[str, tuple[float, asyncio.Future[Session[Any]]]] = {}
        self._here: dict[str, Session[Any]] = {}

    async def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is none after so many seconds since it was first asked for."""
        began, going = self._going.get(name, (0.0, None))
        is_old = going is not None and going.done() and (_has_failed(going) or monotonic() - began > _LASTS)
        if going is None or is_old or going.get_loop() is not asyncio.get_running_loop():
            began, going = monotonic(), asyncio.ensure_future(self._join(name))
            self._going[name] = (began, going)
        await asyncio.wait({going}, timeout=max(0.0, began + _SERVERS_SHARE * seconds - monotonic()))
        if going.done():
            self._here[name] = going.result()
        elif name not in self._here:
            with suppress(PrivateerError):
                kept = self._kept(name)
                if kept is not None:
                    self._here[name] = kept
        return self._here.get(name)


def _has_failed(future: "asyncio.Future[Any]") -> bool:
    return future.cancelled() or future.exception() is not None
