"""An event loop on simulated time, in which a seed decides when the work of threads begins and ends.

Nothing here waits for the machine: if nothing is to be done, time goes on to the next timer. Work for threads is done
in the one thread that there is, as a whole, at a moment that the seed draws, and others hear of its end at another. So
the same seed gives the same order of events on every machine, however busy it is. What two threads do to each other in
the midst of such work is not simulated: tests that kill processes show that (`tests/integration/test_kills.py`).
"""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

_BEFORE, _DURING = 0.0005, 0.003
"""Mean seconds until a thread begins with its work, and until others hear of its end."""
_BEGAN = 1_000_000.0


@dataclass(frozen=True)
class Lasting:
    """The result of work that waits: it takes ``seconds`` with probability 1/2, and else a moment."""

    seconds: float


class _Timers(selectors.SelectSelector):
    """Never waits: returns the events that are ready, or advances the simulated time by the timeout."""

    def __init__(self, passing: Callable[[float], None]) -> None:
        super().__init__()
        self._passing = passing

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everything waits for something that never comes")
        if not ready and timeout:
            self._passing(timeout)
        return ready


class Schedule(asyncio.SelectorEventLoop):
    """The loop of one simulation.

    Parameters
    ----------
    seed
        Decides how long work takes.
    """

    def __init__(self, seed: int) -> None:
        self._time, self._rng = 0.0, Random(seed)
        self._free: dict[Executor, float] = {}
        super().__init__(_Timers(self._pass))
        self._clock_resolution = 1e-6  # what rounding may take from a timer

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._time

    def _pass(self, seconds: float) -> None:
        self._time += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do work at a moment that the seed draws; that of an executor with one thread in its order."""
        if executor is not None and executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[Any] = self.create_future()
        begins, lasts = self.time() + self._draw_seconds(_BEFORE), self._draw_seconds(_DURING)
        if executor is not None and executor._max_workers == 1:
            begins = max(begins, self._free.get(executor, 0.0))
            self._free[executor] = begins + lasts
        self.call_at(begins, self._work, future, lasts, lambda: func(*args))
        return future

    def _draw_seconds(self, mean: float) -> float:
        return self._rng.expovariate(1 / mean)

    def _work(self, future: asyncio.Future[Any], lasts: float, work: Callable[[], Any]) -> None:
        if future.cancelled():
            return
        result: Any = None
        try:
            result, error = work(), None
        except Exception as exception:
            error = exception
        if isinstance(result, Lasting):
            result, lasts = None, self._rng.choice([lasts, result.seconds])
        self.call_later(lasts, _set_outcome, future, result, error)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the work of a framework's threads done here, too."""

        async def run_sync(work: Callable[..., Any], *args: Any, **_: Any) -> Any:
            return await self.run_in_executor(None, work, *args)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("anyio.to_thread.run_sync", run_sync)
            yield


def _set_outcome(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # nobody waits for it any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Hands:
    """The clock of a simulation: it goes with the loop, and somebody may set it or let time pass at once."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._passed, self._set = schedule, _BEGAN, 0.0

    def now(self) -> float:
        return self.monotonic() + self._set

    def monotonic(self) -> float:
        return self._passed + self._schedule.time()

    def step(self, seconds: float) -> None:
        """Set the time of day; no time passes."""
        self._set += seconds

    def skip(self, seconds: float) -> None:
        """Let time pass at once, as for a machine that slept."""
        self._passed += seconds
