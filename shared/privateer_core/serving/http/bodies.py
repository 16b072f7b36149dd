"""The bodies of requests: announced, read within the memory that all bodies of a process may take, and checked."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any, Final, NamedTuple, Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from privateer_core.errors import PrivateerError, TooLarge, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.batch import Announcement

_SUBSCRIBER_PREFIX_BITS: Final = 64  # of the network prefix of an IPv6 address, which the subscriber does not choose


class Body(NamedTuple):
    """The announcement of a body that is about to be read."""

    length: int  # maximum number of bytes
    sender: str  # the id of the key that signed the body, or the address of the peer
    # digest, signed_at: the body's SHA-256 and time of signature, in seconds since 1970, if a trusted sender signed it
    digest: bytes | None = None
    signed_at: float = 0.0
    admission: Admission | None = None  # the body's upload token, if tokens are required

    @classmethod
    def from_length(
        cls, content_length: str | bytes | None, max_length: int, sender: str, admission: Admission | None = None
    ) -> Self:
        """Return a body of the announced length, or of ``max_length`` bytes if none is announced."""
        length = _check_length(max_length if content_length is None else int(content_length), max_length)
        return cls(length, sender, admission=admission)

    @classmethod
    def from_signature(cls, announced: Announcement, max_length: int) -> Self:
        """Return the body that a signed header announces."""
        return cls(_check_length(announced.length, max_length), announced.key_id, announced.digest, announced.signed_at)

    @property
    def is_signed(self) -> bool:
        """Whether a trusted sender signed the body."""
        return self.digest is not None


def _check_length(length: int, max_length: int) -> int:
    if length > max_length:
        raise too_large_error(max_length)
    return length


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

    def unregister(self, reservation: "Reservation") -> None:
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
            body = await self._join_chunks(chunks)
        except asyncio.CancelledError:
            # A cancellation for another reason must reach the task that cancelled the request.
            if not self._is_evicted or (self._reader and self._reader.uncancel()):
                raise
            raise _full_error() from None
        finally:
            self._reader = None
            self._budget.unregister(self)
        self._shrink(len(body))
        return body

    async def _join_chunks(self, chunks: AsyncIterator[bytes]) -> bytearray:
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
        self._budget.unregister(self)
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


class IncomingRequest:
    """A request whose body is being received."""

    __slots__ = ("arrived", "headers", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])  # by name in lower case
        self.arrived = time.perf_counter()  # arrival of the latest byte, by the performance counter

    async def chunks(self, receive: Receive) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, and note when; raise `ClientDisconnect` if the client leaves."""
        is_whole = False
        while not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self.arrived, is_whole = time.perf_counter(), not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body


async def verify_digest(chunks: AsyncIterator[bytes], digest: bytes, error: PrivateerError) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, then raise ``error`` if they do not have the digest that was announced."""
    hasher = hashlib.sha256()
    async for chunk in chunks:
        hasher.update(chunk)
        yield chunk
    if hasher.digest() != digest:
        raise error


def peer_address(scope: Any) -> str:
    """Return the peer's address of an ASGI scope; for IPv6 the address of its network."""
    client = scope.get("client")
    address = str(client[0]) if client else ""
    return str(ip_network((address, _SUBSCRIBER_PREFIX_BITS), strict=False)) if ":" in address else address
