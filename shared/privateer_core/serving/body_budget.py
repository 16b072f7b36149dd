"""Limits all request bodies together that a process has in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from privateer_core.errors import TooLarge, Unavailable


class Budget:
    """The bytes that all bodies may take together, from before they are read until they are answered.

    When nothing is left, bodies that are still being read make room: first the oldest one of the sender that holds
    most. So nobody keeps others out with bodies that do not end. Bodies of trusted senders do not make room.

    size: bytes.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._reading: dict[str, dict[Reservation, None]] = {}  # by sender, the oldest first
        self._held: Counter[str] = Counter()

    def reserve(self, size: int, sender: str, *, is_trusted: bool = False) -> "Reservation":
        """Reserve room for a body of at most ``size`` bytes, for a ``with`` block."""
        if self._free < size:
            self._make_room(size)
        self._free -= size
        return Reservation(self, size, sender, is_trusted)

    def _make_room(self, size: int) -> None:
        if self._free + self._held.total() < size:
            raise _full()  # nobody shall make room in vain
        while self._free < size:
            largest = max(self._held, key=self._held.__getitem__)
            next(iter(self._reading[largest])).evict()

    def begin(self, reservation: "Reservation") -> None:
        """Note that a body is being read, and may have to make room."""
        self._reading.setdefault(reservation.sender, {})[reservation] = None
        self._held[reservation.sender] += reservation.size

    def end(self, reservation: "Reservation") -> None:
        """Note that a body is not being read any more; it still has the room that it had."""
        bodies = self._reading.get(reservation.sender, {})
        if reservation not in bodies:
            return
        del bodies[reservation]
        self._held[reservation.sender] -= reservation.size
        if not bodies:
            del self._reading[reservation.sender], self._held[reservation.sender]

    def give_back(self, size: int) -> None:
        """Take back room that is not needed any more."""
        self._free += size


class Reservation:
    """Room for one body.

    size: bytes that it may have.
    sender: the key or address that it comes from.
    """

    def __init__(self, budget: Budget, size: int, sender: str, is_trusted: bool) -> None:
        self._budget, self.size, self.sender, self._is_trusted = budget, size, sender, is_trusted
        self._reader: asyncio.Task[Any] | None = None
        self._is_evicted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Give the room back: the request is answered."""
        self._shrink(0)

    async def read(self, chunks: AsyncIterator[bytes]) -> bytearray:
        """Read the body, and give back the room that it does not take."""
        self._reader = asyncio.current_task()
        if not self._is_trusted:
            self._budget.begin(self)
        try:
            body = await self._collected(chunks)
        except asyncio.CancelledError:
            # Whoever cancels the request for another reason shall find it cancelled.
            if not self._is_evicted or (self._reader and self._reader.uncancel()):
                raise
            raise _full() from None
        finally:
            self._reader = None
            self._budget.end(self)
        self._shrink(len(body))
        return body

    async def _collected(self, chunks: AsyncIterator[bytes]) -> bytearray:
        body, most = bytearray(), self.size
        async for chunk in chunks:
            if len(body) + len(chunk) > most:
                raise too_large(most)
            body += chunk
        return body

    def evict(self) -> None:
        """Stop reading the body, to make room for others."""
        self._is_evicted = True
        self._budget.end(self)
        self._shrink(0)
        if self._reader:
            self._reader.cancel()

    def _shrink(self, size: int) -> None:
        self._budget.give_back(self.size - size)
        self.size = size


def too_large(size: int) -> TooLarge:
    """Return the refusal of a body of more than ``size`` bytes."""
    return TooLarge(f"the body has more than {size} bytes", remedy="send less at once")


def _full() -> Unavailable:
    return Unavailable("the service is reading too many bodies at once", remedy="send the same bytes again later")
