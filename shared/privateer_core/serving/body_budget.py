"""A limit on the memory that all request bodies of a process take together."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Self

from privateer_core.errors import TooLarge, Unavailable


class Budget:
    """The bytes that all bodies may take together, from before they are read until they are answered.

    When the budget is exhausted, bodies that are still being read are evicted: first the oldest body of the sender with
    the most bytes. So no sender can block others with bodies that do not end. Trusted senders are not evicted.
    """

    def __init__(self, size: int) -> None:
        self._free_bytes = size
        self._reading: dict[str, dict[Reservation, None]] = {}  # by sender, the oldest first
        self._evictable_bytes: Counter[str] = Counter()

    def reserve(self, size: int, sender: str, *, is_trusted: bool = False) -> "Reservation":
        """Reserve ``size`` bytes for a body, for a ``with`` block: evict bodies of large senders, or refuse."""
        if self._free_bytes < size and self._free_bytes + self._evictable_bytes.total() < size:
            raise _full_error()  # evicting would not make enough room
        while self._free_bytes < size:
            largest = max(self._evictable_bytes, key=self._evictable_bytes.__getitem__)
            next(iter(self._reading[largest])).evict()
        self._free_bytes -= size
        return Reservation(self, size, sender, is_trusted)

    def begin(self, reservation: "Reservation") -> None:
        """Register a body that is being read, and may be evicted."""
        self._reading.setdefault(reservation.sender, {})[reservation] = None
        self._evictable_bytes[reservation.sender] += reservation.size

    def end(self, reservation: "Reservation") -> None:
        """Unregister a body that is no longer being read; it keeps its reservation."""
        bodies = self._reading.get(reservation.sender, {})
        if reservation not in bodies:
            return
        del bodies[reservation]
        self._evictable_bytes[reservation.sender] -= reservation.size
        if not bodies:
            del self._reading[reservation.sender], self._evictable_bytes[reservation.sender]

    def give_back(self, size: int) -> None:
        """Return unused bytes to the budget."""
        self._free_bytes += size


class Reservation:
    """A reservation of memory for a body.

    sender: the key or address that the body comes from.
    """

    def __init__(self, budget: Budget, size: int, sender: str, is_trusted: bool) -> None:
        self._budget, self.size, self.sender, self._is_trusted = budget, size, sender, is_trusted
        self._reader: asyncio.Task[Any] | None = None
        self._is_evicted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Return all reserved bytes, since the request is answered."""
        self._shrink(0)

    async def read(self, chunks: AsyncIterator[bytes]) -> bytearray:
        """Read the body, and give back the reserved bytes that it does not take; refuse a body beyond them."""
        self._reader = asyncio.current_task()
        if not self._is_trusted:
            self._budget.begin(self)
        try:
            body = await self._collect(chunks)
        except asyncio.CancelledError:
            # A cancellation for another reason must reach the task that cancelled the request.
            if not self._is_evicted or (self._reader and self._reader.uncancel()):
                raise
            raise _full_error() from None
        finally:
            self._reader = None
            self._budget.end(self)
        self._shrink(len(body))
        return body

    async def _collect(self, chunks: AsyncIterator[bytes]) -> bytearray:
        """Return the joined chunks of a body, and refuse more bytes than are reserved."""
        body, max_size = bytearray(), self.size
        async for chunk in chunks:
            if len(body) + len(chunk) > max_size:
                raise too_large_error(max_size)
            body += chunk
        return body

    def evict(self) -> None:
        """Stop reading the body, to make room for other bodies."""
        self._is_evicted = True
        self._budget.end(self)
        self._shrink(0)
        if self._reader:
            self._reader.cancel()

    def _shrink(self, size: int) -> None:
        self._budget.give_back(self.size - size)
        self.size = size


def too_large_error(size: int) -> TooLarge:
    """Return the error about a body of more than ``size`` bytes."""
    return TooLarge(f"the body has more than {size} bytes", remedy="send less at once")


def _full_error() -> Unavailable:
    return Unavailable("the service is reading too many bodies at once", remedy="send the same bytes again later")
