"""Sessions with a time limit: if a server is slow, its answer is used for the next page."""

import atexit
from collections.abc import Callable
from contextlib import suppress
from inspect import GEN_SUSPENDED, getgeneratorstate
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from privateer_client.delivery import Steps
from privateer_client.session import Session
from privateer_client.watchdog import abort_requests
from privateer_core.errors import PrivateerError, Unavailable

_Result = TypeVar("_Result")
SESSION_SECONDS: Final = 60.0
"""Seconds after which an experiment is joined again."""
SERVER_TIME_SHARE: Final = 0.9
"""The share of the time limit that a server may take; the device chooses in the rest."""
_EXIT_SECONDS: Final = 1.0
"""The longest that the end of the process waits for tasks whose requests were broken off."""
_threads: Final = WeakSet[Thread]()


@atexit.register
def _end_tasks() -> None:
    """Abort requests and wait for tasks, since a thread in native code at the interpreter's end aborts the process."""
    if threads := [thread for thread in _threads if thread.is_alive()]:
        abort_requests()
        end = monotonic() + _EXIT_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - monotonic()))


class AwaitedResult:
    """The decision whether a result is awaited: it is abandoned, or it is promised to be awaited, but never both."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_abandoned = self._is_promised = False

    def is_awaited(self) -> bool:
        """Promise to await the result, unless it is abandoned; return whether it is awaited."""
        with self._lock:
            self._is_promised = not self._is_abandoned
            return self._is_promised

    def abandon(self) -> bool:
        """Abandon the result, unless it is promised to be awaited; return whether it is abandoned."""
        with self._lock:
            self._is_abandoned = not self._is_promised
            return self._is_abandoned


class BackgroundTask(Generic[_Result]):
    """A function call in a thread of its own, whose result can be awaited with a time limit.

    work: the function. Before it changes stored data it must call its argument, which returns whether to go on.
    """

    # The end of the process would wait for a thread pool.

    def __init__(self, work: Callable[[Callable[[], bool]], _Result]) -> None:
        self.began, self._end_event, self._promise = monotonic(), Event(), AwaitedResult()
        self._result: _Result | None = None
        self._error: BaseException | None = None
        thread = Thread(target=self._run, args=(work,), daemon=True, name="privateer-beside")
        _threads.add(thread)
        thread.start()

    def _run(self, work: Callable[[Callable[[], bool]], _Result]) -> None:
        """Do the work, which can ask if its result is still awaited; keep its result or error, and signal the end."""
        try:
            self._result = work(self._promise.is_awaited)
        except BaseException as error:
            self._error = error
        self._end_event.set()

    def is_outdated(self, seconds: float) -> bool:
        """Whether the call has failed, or has ended and began more than ``seconds`` ago."""
        return self._end_event.is_set() and (self._error is not None or monotonic() - self.began > seconds)

    def result(self, end: float) -> _Result | None:
        """Wait for the result of the call, or raise its exception; return None, and abandon it, after ``end``."""
        if not self._end_event.wait(max(0.0, end - monotonic())):
            if self._promise.abandon():
                return None
            self._end_event.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Joins:
    """Joins of a server's experiments, of which each shows whether it waits for the server or for this device."""

    def __init__(self, url: str, make_steps: Callable[[str], Steps[Session[Any]]]) -> None:
        self._url, self._make_steps = url, make_steps
        self._steps: dict[str, Steps[Session[Any]]] = {}

    def begin_steps(self, name: str) -> Steps[Session[Any]]:
        """Return the steps of a new join."""
        steps = self._steps[name] = self._make_steps(name)
        return steps

    def late_error(self, name: str, seconds: float) -> Unavailable:
        """Return the error about the server, if the join waits for it, or else the ledger."""
        steps = self._steps.get(name)
        is_server = steps is not None and getgeneratorstate(steps) == GEN_SUSPENDED
        late = self._url if is_server else "the ledger"
        return Unavailable(f"{late} did not answer within {seconds:g} s", remedy="try again later")


class SessionsInTime(Joins):
    """Sessions by experiment, which are joined in the background, with the stored publication until then.

    run: runs the steps of a join.
    load_stored: returns a session with the stored publication; None if no publication is stored.
    """

    def __init__(
        self,
        url: str,
        make_steps: Callable[[str], Steps[Session[Any]]],
        run: Callable[[Steps[Session[Any]]], Session[Any]],
        load_stored: Callable[[str], Session[Any] | None],
    ) -> None:
        super().__init__(url, make_steps)
        self._run, self._load_stored, self._lock = run, load_stored, Lock()
        self._joins: dict[str, BackgroundTask[Session[Any]]] = {}
        self._sessions: dict[str, Session[Any]] = {}

    def get(self, name: str, seconds: float) -> Session[Any] | None:
        """Return a session; None if there is no session ``seconds`` after the start of the join."""
        with self._lock:
            task = self._joins.get(name)
            if task is None or task.is_outdated(SESSION_SECONDS):
                task = self._joins[name] = BackgroundTask(lambda _: self._join_session(name))
        return task.result(task.began + SERVER_TIME_SHARE * seconds) or self._sessions.get(name)

    def _join_session(self, name: str) -> Session[Any]:
        """Join an experiment, and store its session; until then, store the session of the stored publication."""
        if name not in self._sessions:
            with suppress(PrivateerError):
                stored = self._load_stored(name)
                if stored is not None:
                    self._sessions[name] = stored
        session = self._sessions[name] = self._run(self.begin_steps(name))
        return session
