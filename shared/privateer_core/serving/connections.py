"""The table of a listener's connections, which closes connections if there are too many or peers are too slow."""

import asyncio
from collections import Counter
from enum import IntEnum
from typing import Final, Protocol

from privateer_core.serving.fair_queue import RequestQueue

_SWEEP_SECONDS: Final = 1.0
UNREAD_BYTES_MAX: Final = 256 << 20
"""Bytes of answers that may be buffered in memory for slow peers."""
_SENDER_DIVISOR: Final = 2
"""A sender may have this fraction of the buffered bytes: one half."""
_GREEDY_DIVISOR: Final = 64
"""A sender with more than this fraction of the connections makes room for others."""


class ConnectionStage(IntEnum):
    """The stage of a connection. The earlier the stage, the less is lost when the connection is closed."""

    WAITING = 0  # for a request, or for the rest of its headers
    READING = 1  # a body
    WORKING = 2  # on the answer


class Connection(Protocol):
    """A connection in the table."""

    stage: ConnectionStage
    sender: str  # the address of the peer

    def is_overdue(self, now: float) -> bool:
        """Whether the peer has exceeded its deadline."""

    def drop(self) -> None:
        """Close the connection at once, also in the middle of a message."""


class Connections:
    """A table of connections by stage, in the order in which they reached it.

    If there are too many, the oldest connection of the earliest stage is closed, so that a new connection is always
    accepted, and unused connections are closed first; where a sender has a large share of the table, that is one of the
    sender with the most. Once a second the overdue connections are closed.

    Peers that take answers too slowly, or send requests too fast, leave bytes buffered in memory. Where these are too
    many, the connection that has been slow for longest is closed, of the sender with the most buffered bytes.

    unread_max: bytes of answers that may be buffered at a time; a single sender may have half of them.
    """

    def __init__(self, max_connections: int, unread_max: int = UNREAD_BYTES_MAX) -> None:
        self._max_connections, self._unread_max = max_connections, unread_max
        self._slow: dict[str, dict[Connection, int]] = {}  # bytes by sender and connection, the slowest first
        self._unread: Counter[str] = Counter()
        self._stages: dict[ConnectionStage, dict[Connection, None]] = {stage: {} for stage in ConnectionStage}
        self._counts: Counter[str] = Counter()  # connections by sender
        self._next_sweep: asyncio.TimerHandle | None = None
        self.requests = RequestQueue()

    def __len__(self) -> int:
        return sum(map(len, self._stages.values()))

    def enter(self, connection: Connection) -> None:
        """Add a connection that was just accepted, and close another connection if there are too many."""
        if len(self) >= self._max_connections:
            oldest = self._choose_dropped()
            self.leave(oldest)
            oldest.drop()
        self._stages[connection.stage][connection] = None
        self._counts[connection.sender] += 1
        if self._next_sweep is None:
            self._schedule_sweep()

    def move(self, connection: Connection, stage: ConnectionStage) -> None:
        """Move a connection to another stage."""
        if self._stages[connection.stage].pop(connection, connection) is None:
            self._stages[stage][connection] = None
        connection.stage = stage

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        if self._stages[connection.stage].pop(connection, connection) is None:
            self._counts[connection.sender] -= 1
            if not self._counts[connection.sender]:
                del self._counts[connection.sender]
        self.note_drained(connection)

    def _choose_dropped(self) -> Connection:
        """Return the connection to drop: the oldest of the earliest stage, of the largest sender if these are many."""
        connections = (connection for stage in self._stages.values() for connection in stage)
        greediest, count = max(self._counts.items(), key=lambda item: item[1])
        is_greedy = count > self._max_connections // _GREEDY_DIVISOR
        return next(connection for connection in connections if not is_greedy or connection.sender == greediest)

    @property
    def unread(self) -> int:
        """Bytes of answers that are buffered for slow peers."""
        return self._unread.total()

    def note_slow(self, connection: Connection, unread: int) -> None:
        """Register a peer that takes its answer too slowly, and close the slowest if too many bytes are buffered."""
        self.note_drained(connection)
        sender = connection.sender
        self._slow.setdefault(sender, {})[connection] = unread
        self._unread[sender] += unread
        while len(self._slow[sender]) > 1 and self._unread[sender] > self._unread_max // _SENDER_DIVISOR:
            self._drop_slowest(sender)
        while self.unread > self._unread_max:
            self._drop_slowest(max(self._unread, key=self._unread.__getitem__))

    def note_drained(self, connection: Connection) -> None:
        """Unregister a peer that has taken its answer, or is gone."""
        unread_by_connection = self._slow.get(connection.sender, {})
        self._unread[connection.sender] -= unread_by_connection.pop(connection, 0)
        if not unread_by_connection:
            self._slow.pop(connection.sender, None)
            del self._unread[connection.sender]

    def _drop_slowest(self, sender: str) -> None:
        slowest = next(iter(self._slow[sender]))
        self.note_drained(slowest)
        slowest.drop()

    def _schedule_sweep(self) -> None:
        self._next_sweep = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._drop_overdue)

    def _drop_overdue(self) -> None:
        """Close the overdue connections, and schedule the next sweep while any are open."""
        now = asyncio.get_running_loop().time()
        overdue = [peer for stage in self._stages.values() for peer in stage if peer.is_overdue(now)]
        for connection in overdue:
            connection.drop()
        self._next_sweep = None
        if len(self):
            self._schedule_sweep()
