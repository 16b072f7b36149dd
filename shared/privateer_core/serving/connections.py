"""The connections of one listener: which of them wait for their peer, and which one closes if there are too many."""

import asyncio
from enum import IntEnum
from typing import Final, Protocol

_LOOK_SECONDS: Final = 1.0


class Stage(IntEnum):
    """What a connection is doing. The earlier the stage, the less is lost when it is closed."""

    WAITING = 0  # for a request, or for the rest of its headers
    READING = 1  # a body
    WORKING = 2  # on the answer


class Connection(Protocol):
    """What the table needs from a connection."""

    stage: Stage

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

    Parameters
    ----------
    most
        Connections that may be open at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._stages: dict[Stage, dict[Connection, None]] = {stage: {} for stage in Stage}
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

    def move(self, connection: Connection, stage: Stage) -> None:
        """Note that a connection has reached another stage."""
        if self._stages[connection.stage].pop(connection, connection) is None:
            self._stages[stage][connection] = None
        connection.stage = stage

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._stages[connection.stage].pop(connection, None)

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
