"""Work that strangers cause, one piece at a time: senders take turns, and together they have a share of a processor."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from privateer_core.errors import Unavailable

T = TypeVar("T")
_OWN_MAX: Final = 64
_RESTS: Final = 3.0
"""Seconds without such work for each second of it: it takes a quarter of a processor at most."""
_REST_MAX: Final = 0.25
"""Seconds: a piece of work that took long keeps nobody waiting for longer."""


class FairQueue:
    """Pieces of work by sender.

    A sender who asks for a lot waits behind its own requests alone. Whoever asks while nothing goes on need not wait.

    Parameters
    ----------
    own_max
        Pieces of work that may wait for one sender.
    """

    def __init__(self, own_max: int = _OWN_MAX) -> None:
        self._own_max = own_max
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def run(self, sender: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do a piece of work when it is the sender's turn, and return what it returns.

        Raises
        ------
        Unavailable
            If too many wait for this sender.
        """
        if self._is_busy:
            await self._turn(sender)
        self._is_busy = True
        began = time.perf_counter()
        try:
            return await work()
        finally:
            rest = min(_RESTS * (time.perf_counter() - began), _REST_MAX)
            asyncio.get_running_loop().call_later(rest, self._next)

    async def _turn(self, sender: str) -> None:
        own = self._waiting.setdefault(sender, deque())
        if len(own) >= self._own_max:
            raise Unavailable("too many pages are asked for at once", remedy="try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came, and nobody takes it
                self._next()
            raise

    def _next(self) -> None:
        """Give the turn to the sender who has waited longest since its last one."""
        self._is_busy = False
        while self._waiting:
            sender, own = next(iter(self._waiting.items()))
            del self._waiting[sender]
            turn: asyncio.Future[Any] = own.popleft()
            if own:
                self._waiting[sender] = own  # behind the others
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)
                return
