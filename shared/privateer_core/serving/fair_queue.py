"""Queues in which senders take turns, so that what one of them sends a lot of delays nobody else."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from privateer_core.errors import Unavailable

T = TypeVar("T")
_OWN_MAX: Final = 64
_RESTS: Final = 3.0
"""Seconds without such work for each second of it: it takes a quarter of a processor at most."""
_REST_MAX: Final = 0.25
"""Seconds: a piece of work that took long keeps nobody waiting for longer."""
_TURN_BYTES: Final = 8 * 1024
"""Sealed bytes that a turn is good for: some hundred reports, a few milliseconds of opening."""


class FairQueue:
    """A queue of work that strangers cause: one piece at a time, and a share of a processor for all of it.

    A sender who asks for a lot waits behind its own requests alone. Whoever asks while nothing goes on need not wait.

    own_max: pieces of work that may wait for one sender.
    """

    def __init__(self, own_max: int = _OWN_MAX) -> None:
        self._own_max = own_max
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def run(self, sender: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do a piece of work when it is the sender's turn, and return what it returns."""
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


class Sized(Protocol):
    """A request that waits in a queue."""

    @property
    def size(self) -> int:
        """The bytes of work in it."""
        ...


SizedT = TypeVar("SizedT", bound=Sized)


class _Line(Generic[SizedT]):
    """The requests of one sender that wait, and the bytes that its turns have come to."""

    def __init__(self) -> None:
        self.waiting: deque[SizedT] = deque()
        self.credit = 0


class SenderQueue(Generic[SizedT]):
    """The requests that wait, by sender.

    Every sender's turn is good for the same number of bytes; a larger request takes several turns (deficit round
    robin). A sender holds no more places than are free, so that there are always some for others.

    places: requests that may wait.
    group_bytes: a group takes no more requests once it has as many bytes; larger requests count as no more than that.
    """

    def __init__(self, places: int, group_bytes: int) -> None:
        self._free, self._group_bytes = places, group_bytes
        self._lines: dict[str, _Line[SizedT]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, sender: str, request: SizedT) -> bool:
        """Queue a request; False if the sender has its share of the queue."""
        line = self._lines.get(sender)
        if self._free <= (len(line.waiting) if line else 0):
            return False
        if line is None:
            line = self._lines[sender] = _Line()
        line.waiting.append(request)
        self._free -= 1
        return True

    def group(self) -> list[SizedT]:
        """Return the requests to answer next: one turn of every sender, or of a single sender as many as fit."""
        group: list[SizedT] = []
        size, is_alone = 0, len(self._lines) == 1
        while self._lines and (not group or (is_alone and size < self._group_bytes)):
            taken = self._turn()
            group += taken
            size += sum(self._cost(request) for request in taken)
        self._free += len(group)
        return group

    def _turn(self) -> list[SizedT]:
        """Return what every sender's next turn is good for; turns in which nobody could do anything are skipped."""
        missing = min(self._cost(line.waiting[0]) - line.credit for line in self._lines.values())
        credit = max(_TURN_BYTES, missing)
        return [request for sender in list(self._lines) for request in self._served(sender, credit)]

    def _served(self, sender: str, credit: int) -> list[SizedT]:
        line, served = self._lines[sender], []
        line.credit += credit
        while line.waiting and (cost := self._cost(line.waiting[0])) <= line.credit:
            line.credit -= cost
            served.append(line.waiting.popleft())
        if not line.waiting:
            del self._lines[sender]
        return served

    def _cost(self, request: SizedT) -> int:
        return min(request.size, self._group_bytes)
