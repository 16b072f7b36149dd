"""Clocks, so that tests can set the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock for the time of day, and one for the time that has passed."""

    def now(self) -> float:
        """Return seconds since 1970. Somebody may set this clock, forwards or backwards."""
        ...

    def monotonic(self) -> float:
        """Return seconds since a moment that stays the same while the process runs. Nobody can set this clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since some moment before the process began."""
        return time.monotonic()
