"""Long polls for the next policy, and their limit: no sender can take all connections."""

import asyncio
from collections.abc import Callable
from typing import Final

from privateer_core.errors import Unavailable
from privateer_server.experiments.experiment import Experiment

MAX_POLLS: Final = 128  # the number of concurrent long polls of the public: a few of the public listener's connections


class LimitedConnection:
    """The connection of a long poll."""

    def __init__(self) -> None:
        self.is_open = True  # False once another sender has replaced the long poll
        self.on_loss: Callable[[], object] = lambda: None  # called then: the long poll ends at once


class ConnectionLimit:
    """The open long polls of a listener, by sender.

    At the limit the oldest long poll of the sender with the most is closed, unless the new sender would then have
    as many. So a single sender cannot exclude others.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._by_sender: dict[str, dict[LimitedConnection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_sender.values()))

    def acquire(self, sender: str) -> LimitedConnection:
        """Open a connection for a sender, or raise an error at the limit."""
        if len(self) >= self._max_connections:
            self._close_oldest(sender)
        connection = LimitedConnection()
        self._by_sender.setdefault(sender, {})[connection] = None
        return connection

    def release(self, sender: str, connection: LimitedConnection) -> None:
        """Remove the connection of a sender; it may be removed already."""
        connection.is_open = False
        sender_connections = self._by_sender.get(sender, {})
        sender_connections.pop(connection, None)
        if not sender_connections:
            self._by_sender.pop(sender, None)

    def _close_oldest(self, sender: str) -> None:
        """Close the oldest poll of the sender with the most; refuse the new sender if that is no fairer."""
        greediest = max(self._by_sender, key=lambda name: len(self._by_sender[name]))
        if len(self._by_sender[greediest]) <= len(self._by_sender.get(sender, ())) + 1:
            raise Unavailable("too many requests wait", remedy="ask without waiting, or try again later")
        oldest = next(iter(self._by_sender[greediest]))
        self.release(greediest, oldest)
        oldest.on_loss()


class Polls:
    """The long polls under way.

    A long poll holds a connection, so the number of concurrent long polls of the public is limited, with fair shares of
    senders. A request beyond the limit is answered at once, as is a long poll that is replaced; both are sent again.
    Shufflers use the private listener, without a limit.
    """

    def __init__(self, max_strangers: int = MAX_POLLS) -> None:
        self._limit = ConnectionLimit(max_strangers)

    async def wait(self, experiment: Experiment, seconds: float, sender: str | None) -> None:
        """Return once another round is published, the time is up, or at once beyond the limit.

        sender: the public sender; None: a shuffler or an operator.
        """
        if sender is None:
            await experiment.next_publication(seconds)
            return
        try:
            connection = self._limit.acquire(sender)
        except Unavailable:
            return
        waiter = asyncio.ensure_future(experiment.next_publication(seconds))
        connection.on_loss = waiter.cancel
        try:
            await asyncio.wait({waiter})
        finally:
            waiter.cancel()
            self._limit.release(sender, connection)
