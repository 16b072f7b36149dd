"""Time as a dependency, so that tests own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time of day, and the time that has passed."""

    def now(self) -> float:
        """Seconds since the epoch. Somebody may set this clock, forwards or backwards."""
        ...

    def monotonic(self) -> float:
        """Seconds since a moment that stays the same while the process runs; nobody can set this clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment before the process began."""
        return time.monotonic()
