"""Time as a dependency, so that tests own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time, in seconds since the epoch."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
