"""Pauses of a load run: as long as a service asks for with ``Retry-After``, within bounds, and counted."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from privateer_client.transport import retry_seconds
from privateer_core.errors import printable
from privateer_lab.services.rest import Busy

TRIES: Final = 60
"""After so many answers that decide nothing, the run gives a question or an upload up."""
_FIRST, _OWN, _LONGEST = 0.05, 2.0, 30.0
"""Seconds of the first pause and of the longest one where nobody asks for more; and of the longest one of all."""
_Answer = TypeVar("_Answer")


@dataclass
class Backoff:
    """How a run waits before it asks again.

    Attributes
    ----------
    waits, seconds
        How often a service said when to come again, and for how long people waited then, over all of them.
    """

    waits: int = 0
    seconds: float = 0.0

    async def pause(self, attempt: int, retry_after: str | None) -> None:
        """Wait after an attempt, counted from 0; ``retry_after`` is the header of its answer, if it has one."""
        asked = retry_seconds(retry_after or "")
        seconds = _pause(attempt, asked)
        if asked:
            self.waits += 1
            self.seconds += seconds
        await asyncio.sleep(seconds)


def patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Ask a service again as long as it says that it is busy, and say so once on standard error.

    Raises
    ------
    Busy
        If it still is after all tries.
    """
    for attempt in range(TRIES - 1):
        try:
            return ask()
        except Busy as error:
            if attempt == 0:
                print(f"waiting for the server: {printable(error.detail)}", file=sys.stderr)
            time.sleep(_pause(attempt, error.retry_after))
    return ask()


def _pause(attempt: int, asked: float) -> float:
    return min(_LONGEST, max(asked, min(_OWN, _FIRST * 2.0**attempt)))
