"""Sessions that are there in time: a server that takes its time holds nobody, and its answer serves the next page."""

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from privateer_client.session import Session
from privateer_core.errors import PrivateerError

_Result = TypeVar("_Result")
LASTS: Final = 60.0
"""Seconds after which an experiment is joined anew."""
SERVERS_SHARE: Final = 0.9
"""The share of the time that a server may take; the device chooses in the rest."""


class AwaitedResult:
    """Says once whether a result is awaited: either it is given up, or from then on it is awaited."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_given_up = self._is_made = False

    def is_awaited(self) -> bool:
        """Promise to await the result, if nobody has given it up."""
        with self._lock:
            self._is_made = not self._is_given_up
            return self._is_made

    def give_up(self) -> bool:
        """Await the result no longer, if nobody was promised to."""
        with self._lock:
            self._is_given_up = not self._is_made
            return self._is_given_up


class Beside(Generic[_Result]):
    """What a thread of its own does, so that nobody has to wait for its end.

    work: what to do. Before it makes something durable it asks whether its result is awaited; from then on it is.
    """

    # A pool would be waited for when the process ends.

    def __init__(self, work: Callable[[Callable[[], bool]], _Result]) -> None:
        self.began, self._done, self._promise = monotonic(), Event(), AwaitedResult()
        self._result: _Result | None = None
        self._error: BaseException | None = None
        Thread(target=self._run, args=(work,), daemon=True, name="privateer-beside").start()

    def _run(self, work: Callable[[Callable[[], bool]], _Result]) -> None:
        try:
            self._result = work(self._promise.is_awaited)
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
            if self._promise.give_up():
                return None
            self._done.wait()
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
            is_old = going is not None and going.is_done and (going.has_failed or monotonic() - going.began > LASTS)
            if going is None or is_old:
                going = self._going[name] = Beside(lambda _: self._joined(name))
        return going.result(going.began + SERVERS_SHARE * seconds) or self._here.get(name)

    def _joined(self, name: str) -> Session[Any]:
        if name not in self._here:
            with suppress(PrivateerError):
                kept = self._kept(name)
                if kept is not None:
                    self._here[name] = kept
        session = self._here[name] = self._join(name)
        return session
