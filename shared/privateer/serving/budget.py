"""One limit on all request bodies that a process has in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from privateer.errors import TooLarge, Unavailable


class Budget:
    """The bytes that all bodies may take together, from before they are read until they are answered.

    When nothing is left, bodies that are still being read make room: first the oldest one of the sender that holds
    most. So nobody keeps others out with bodies that do not end. Bodies of trusted senders do not make room.

    Parameters
    ----------
    size
        Bytes.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._reading: dict[Reservation, None] = {}

    def reserve(self, size: int, sender: str, *, is_trusted: bool = False) -> "Reservation":
        """Reserve room for a body of at most ``size`` bytes, for a ``with`` block.

        Raises
        ------
        Unavailable
            If there is not enough.
        """
        while self._free < size and self._reading:
            self._largest_sender()[0].evict()
        if self._free < size:
            raise _full()
        self._free -= size
        return Reservation(self, size, sender, is_trusted)

    def _largest_sender(self) -> list["Reservation"]:
        """Return the bodies of the sender that holds most, the oldest first."""
        held: Counter[str] = Counter()
        for one in self._reading:
            held[one.sender] += one.size
        largest = held.most_common(1)[0][0]
        return [one for one in self._reading if one.sender == largest]

    def begin(self, reservation: "Reservation") -> None:
        """Note that a body is being read, and may have to make room."""
        self._reading[reservation] = None

    def end(self, reservation: "Reservation") -> None:
        """Note that a body is not being read any more."""
        self._reading.pop(reservation, None)

    def give_back(self, size: int) -> None:
        """Take back room that is not needed any more."""
        self._free += size


class Reservation:
    """Room for one body.

    Attributes
    ----------
    size
        Bytes that it may have.
    sender
        The key or address that it comes from.
    """

    def __init__(self, budget: Budget, size: int, sender: str, is_trusted: bool) -> None:
        self._budget, self.size, self.sender, self._is_trusted = budget, size, sender, is_trusted
        self._limit = asyncio.timeout(None)
        self._is_evicted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shrink(0)

    async def read(self, chunks: AsyncIterator[bytes]) -> bytearray:
        """Read the body, and give back the room that it does not take.

        Raises
        ------
        TooLarge
            As soon as it has more than ``size`` bytes.
        Unavailable
            If it had to make room for others.
        """
        try:
            body = await self._collected(chunks)
        except TimeoutError:
            raise _full() from None
        finally:
            self._budget.end(self)
        if self._is_evicted:
            raise _full()
        self._shrink(len(body))
        return body

    async def _collected(self, chunks: AsyncIterator[bytes]) -> bytearray:
        body, most = bytearray(), self.size
        async with self._limit:
            if not self._is_trusted:
                self._budget.begin(self)
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
        self._limit.reschedule(0)

    def _shrink(self, size: int) -> None:
        self._budget.give_back(self.size - size)
        self.size = size


def too_large(size: int) -> TooLarge:
    """Return the refusal of a body of more than ``size`` bytes."""
    return TooLarge(f"the body has more than {size} bytes", remedy="send less at once")


def _full() -> Unavailable:
    return Unavailable("the service is reading too many bodies at once", remedy="send the same bytes again later")
