"""The connections of one listener: which of them wait for their peer, and which one closes if there are too many."""

import asyncio
from collections import Counter
from enum import IntEnum
from ipaddress import ip_network
from typing import Any, Final, Protocol

_LOOK_SECONDS: Final = 1.0
UNREAD_MAX: Final = 256 << 20
"""Bytes of answers that may wait in memory until slow peers take them."""
_SHARE: Final = 2
"""One sender may have the first half of them."""
_OWNED: Final = 64
"""Bits of an IPv6 address that one subscriber does not choose."""


class ConnectionStage(IntEnum):
    """The stage that a connection is at. The earlier the stage, the less is lost when it is closed."""

    WAITING = 0  # for a request, or for the rest of its headers
    READING = 1  # a body
    WORKING = 2  # on the answer


class Connection(Protocol):
    """A connection as the table needs it."""

    stage: ConnectionStage

    @property
    def sender(self) -> str:
        """The address of the peer."""
        ...

    def is_overdue(self, now: float) -> bool:
        """Whether its peer has had enough time."""
        ...

    def drop(self) -> None:
        """Close it at once, also in the middle of a message."""
        ...


class Connections:
    """A table of connections by stage, in the order in which they reached it.

    If there are too many, the oldest connection of the earliest stage is closed, so that a newcomer always gets in:
    whoever holds connections without using them loses those first. Once a second the overdue ones are closed.

    Peers that take their answers more slowly than these are sent leave bytes waiting in memory. Where these are too
    many, the slowest connection closes of the sender that has most: the one that has waited longest.

    most: connections that may be open at a time.
    unread_max: bytes of answers that may wait at a time; those of one sender may be half as many.
    """

    def __init__(self, most: int, unread_max: int = UNREAD_MAX) -> None:
        self._most, self._unread_max = most, unread_max
        self._slow: dict[str, dict[Connection, int]] = {}  # bytes by sender and connection, the slowest first
        self._unread: Counter[str] = Counter()
        self._stages: dict[ConnectionStage, dict[Connection, None]] = {stage: {} for stage in ConnectionStage}
        self._next_look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._stages.values()))

    def enter(self, connection: Connection) -> None:
        """Add a connection that was just accepted, and close another one if there are too many."""
        if len(self) >= self._most:
            self._make_room()
        self._stages[connection.stage][connection] = None
        if self._next_look is None:
            self._look_later()

    def move(self, connection: Connection, stage: ConnectionStage) -> None:
        """Note that a connection has reached another stage."""
        if self._stages[connection.stage].pop(connection, connection) is None:
            self._stages[stage][connection] = None
        connection.stage = stage

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._stages[connection.stage].pop(connection, None)
        self.hasten(connection)

    @property
    def unread(self) -> int:
        """Bytes that wait for slow peers."""
        return self._unread.total()

    def delay(self, connection: Connection, unread: int) -> None:
        """Note that a peer does not take its answer as it is sent, and close others, or it, if too much waits."""
        self.hasten(connection)
        sender = connection.sender
        self._slow.setdefault(sender, {})[connection] = unread
        self._unread[sender] += unread
        while len(self._slow[sender]) > 1 and self._unread[sender] > self._unread_max // _SHARE:
            self._drop_slowest(sender)
        while self.unread > self._unread_max:
            self._drop_slowest(max(self._unread, key=self._unread.__getitem__))

    def hasten(self, connection: Connection) -> None:
        """Note that a peer has taken its answer, or is gone."""
        own = self._slow.get(connection.sender, {})
        self._unread[connection.sender] -= own.pop(connection, 0)
        if not own:
            self._slow.pop(connection.sender, None)
            del self._unread[connection.sender]

    def _drop_slowest(self, sender: str) -> None:
        slowest = next(iter(self._slow[sender]))
        self.hasten(slowest)
        slowest.drop()

    def _make_room(self) -> None:
        oldest = next(connection for stage in self._stages.values() for connection in stage)
        self.leave(oldest)
        oldest.drop()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [one for stage in self._stages.values() for one in stage if one.is_overdue(now)]:
            connection.drop()
        self._next_look = None
        if len(self):
            self._look_later()


def peer(scope: Any) -> str:
    """Return the address at the other end of a connection, from an ASGI scope. For IPv6 it is the network."""
    client = scope.get("client")
    address = str(client[0]) if client else ""
    return str(ip_network((address, _OWNED), strict=False)) if ":" in address else address
