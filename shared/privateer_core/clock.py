"""Clocks, so that tests can set the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def now(self) -> float:
        """Return seconds since 1970. This clock may be set, forwards or backwards."""

    def monotonic(self) -> float:
        """Return seconds since a moment that is fixed while the process runs. This clock cannot be set."""


class SystemClock:
    """The clocks of the operating system."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
