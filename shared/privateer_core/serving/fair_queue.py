"""Fair queues in which senders take turns, so that a sender with many requests does not delay other senders."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from privateer_core.errors import Unavailable
from privateer_core.serving.thread_turns import THREAD_TURNS

T = TypeVar("T")
_SENDER_WAITING_MAX: Final = 64
_REST_PER_WORK_SECOND: Final = 3.0
"""Seconds of rest for each second of work, so that the work takes a quarter of a processor at most."""
_REST_SECONDS_MAX: Final = 0.25
"""Longest rest after a piece of work, in seconds."""
_TURN_BYTES: Final = 8 * 1024
"""Sealed bytes of a turn: a hundred reports, which take a few milliseconds to decrypt."""


def too_many_error() -> Unavailable:
    """Return the refusal of a sender with too many waiting pieces of work."""
    return Unavailable("too many pages are asked for at once", remedy="try again later")


class FairQueue:
    """A queue of work for untrusted senders: one piece at a time, with a bounded share of a processor.

    A sender waits behind its own requests and one request of each other sender. An idle queue starts work at once.

    sender_max: pieces of work of one sender that may wait.
    """

    def __init__(self, sender_max: int = _SENDER_WAITING_MAX) -> None:
        self._sender_max = sender_max
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def run(self, sender: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run a piece of work when it is the sender's turn, and return its result."""
        if self._is_busy:
            await self._wait_for_turn(sender)
        self._is_busy = True
        began = time.perf_counter()
        try:
            return await work()
        finally:
            rest = min(_REST_PER_WORK_SECOND * (time.perf_counter() - began), _REST_SECONDS_MAX)
            asyncio.get_running_loop().call_later(rest, self._give_turn)

    async def _wait_for_turn(self, sender: str) -> None:
        """Wait for the sender's turn, and refuse a sender with too many waiting pieces of work."""
        if self.is_full(sender):
            raise too_many_error()
        turns = self._waiting.setdefault(sender, deque())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn would be lost
                self._give_turn()
            raise

    def is_full(self, sender: str) -> bool:
        """Whether the sender has as many waiting pieces of work as it may have."""
        return len(self._waiting.get(sender, ())) >= self._sender_max

    def _give_turn(self) -> None:
        """Give the turn to the sender who has waited longest since its last turn."""
        self._is_busy = False
        while self._waiting:
            sender, turns = next(iter(self._waiting.items()))
            del self._waiting[sender]
            turn: asyncio.Future[Any] = turns.popleft()
            if turns:
                self._waiting[sender] = turns  # behind the others
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)
                return


class RequestQueue:
    """The received requests by sender, of which each pass of the event loop answers one of every sender."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._is_scheduled = False

    def put(self, sender: str, answer: Callable[[], None]) -> bool:
        """Queue a function that answers a request; False if other requests of the sender come before it."""
        requests = self._waiting.setdefault(sender, deque())
        requests.append(answer)
        self._schedule_pass()
        return len(requests) == 1

    async def wait_for_turn(self, sender: str) -> None:
        """Wait for the sender's turn."""
        turn = asyncio.Event()
        self.put(sender, turn.set)
        await turn.wait()

    def _schedule_pass(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._answer_senders)

    def _answer_senders(self) -> None:
        """Answer the first request of every sender."""
        try:
            THREAD_TURNS.give()
            for sender, requests in list(self._waiting.items()):
                answer = requests.popleft()
                if not requests:
                    del self._waiting[sender]
                answer()
        finally:
            self._is_scheduled = False
            self._schedule_pass()


RequestT = TypeVar("RequestT")


class _SenderLine(Generic[RequestT]):
    """The waiting requests of one sender with their sizes, and the sender's credit in bytes."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, RequestT]] = deque()
        self.credit = 0


class SenderQueue(Generic[RequestT]):
    """The waiting requests by sender, scheduled by deficit round robin.

    Every turn of a sender adds the same number of bytes to its credit, so that a large request takes several turns. A
    sender has at most as many waiting requests as there are free places, so that other senders find places, too.

    group_bytes: size at which a group is full; a larger request counts as this size.
    """

    def __init__(self, capacity: int, group_bytes: int) -> None:
        self._free, self._group_bytes = capacity, group_bytes
        self._lines: dict[str, _SenderLine[RequestT]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, sender: str, request: RequestT, size: int) -> bool:
        """Queue a request of a size in bytes; False if the sender has used its share of the queue."""
        line = self._lines.get(sender)
        if self._free <= (len(line.waiting) if line else 0):
            return False
        if line is None:
            line = self._lines[sender] = _SenderLine()
        line.waiting.append((min(size, self._group_bytes), request))
        self._free -= 1
        return True

    def take_group(self) -> list[RequestT]:
        """Remove and return the requests to answer next: a turn of every sender, or several of a single sender."""
        group: list[RequestT] = []
        size, is_alone = 0, len(self._lines) == 1
        while self._lines and (not group or (is_alone and size < self._group_bytes)):
            for request_size, request in self._take_turns():
                size += request_size
                group.append(request)
        self._free += len(group)
        return group

    def _take_turns(self) -> list[tuple[int, RequestT]]:
        """Remove and return the requests of every sender's next turn; turns that are empty for all are skipped."""
        missing_credit = min(line.waiting[0][0] - line.credit for line in self._lines.values())
        credit, requests = max(_TURN_BYTES, missing_credit), []
        for sender, line in list(self._lines.items()):
            line.credit += credit
            while line.waiting and line.waiting[0][0] <= line.credit:
                requests.append(line.waiting.popleft())
                line.credit -= requests[-1][0]
            if not line.waiting:
                del self._lines[sender]
        return requests
