"""A queue in which senders take turns, so that what one of them sends a lot of delays nobody else."""

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

_TURN_BYTES: Final = 8 * 1024
"""Sealed bytes that a turn is good for: some hundred reports, a few milliseconds of opening."""


class Sized(Protocol):
    """A thing that is queued."""

    @property
    def size(self) -> int:
        """Bytes of work."""
        ...


T = TypeVar("T", bound=Sized)


class _Line(Generic[T]):
    """The requests of one sender that wait, and the bytes that its turns have come to."""

    def __init__(self) -> None:
        self.waiting: deque[T] = deque()
        self.credit = 0


class SenderQueue(Generic[T]):
    """The requests that wait, by sender.

    Every sender's turn is good for the same number of bytes; a larger request takes several turns (deficit round
    robin). A sender holds no more places than are free, so that there are always some for others.

    Parameters
    ----------
    places
        Requests that may wait.
    group_bytes
        A group takes no more requests once it has as many bytes; larger requests count as no more than that.
    """

    def __init__(self, places: int, group_bytes: int) -> None:
        self._free, self._group_bytes = places, group_bytes
        self._lines: dict[str, _Line[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, sender: str, request: T) -> bool:
        """Queue a request; False if the sender has its share of the queue."""
        line = self._lines.get(sender)
        if self._free <= (len(line.waiting) if line else 0):
            return False
        if line is None:
            line = self._lines[sender] = _Line()
        line.waiting.append(request)
        self._free -= 1
        return True

    def group(self) -> list[T]:
        """Return the requests to answer next: one turn of every sender, or of a single sender as many as fit."""
        group: list[T] = []
        size, is_alone = 0, len(self._lines) == 1
        while self._lines and (not group or (is_alone and size < self._group_bytes)):
            taken = self._turn()
            group += taken
            size += sum(self._cost(request) for request in taken)
        self._free += len(group)
        return group

    def _turn(self) -> list[T]:
        """Return what every sender's next turn is good for; turns in which nobody could do anything are skipped."""
        missing = min(self._cost(line.waiting[0]) - line.credit for line in self._lines.values())
        credit = max(_TURN_BYTES, missing)
        return [request for sender in list(self._lines) for request in self._served(sender, credit)]

    def _served(self, sender: str, credit: int) -> list[T]:
        line, served = self._lines[sender], []
        line.credit += credit
        while line.waiting and (cost := self._cost(line.waiting[0])) <= line.credit:
            line.credit -= cost
            served.append(line.waiting.popleft())
        if not line.waiting:
            del self._lines[sender]
        return served

    def _cost(self, request: T) -> int:
        return min(request.size, self._group_bytes)
