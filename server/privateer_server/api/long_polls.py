"""Requests that wait for the next policy, and how many may wait: no sender takes all the room that there is."""

import asyncio
from collections.abc import Callable
from typing import Final

from privateer_core.errors import Unavailable
from privateer_server.experiments.experiment import Experiment

STREAMS_MAX: Final = 128
"""A few of the connections that the public listener has."""
OPERATORS_MAX: Final = 64
POLLS_MAX: Final = 128
"""Strangers who may wait at a time: a few of the connections that the public listener has."""


class LimitedConnection:
    """Room for one stream or long poll."""

    def __init__(self) -> None:
        self.is_taken = True  # False once another sender needed the room: a stream ends at its next beat
        self.on_loss: Callable[[], object] = lambda: None  # is called then: a long poll ends at once


class ConnectionLimit:
    """The streams or long polls that one listener holds open, by sender.

    If all are taken, the oldest one of the sender that holds most makes room, unless the newcomer would then hold
    as many. So one sender alone keeps nobody out.

    most: at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_sender: dict[str, dict[LimitedConnection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_sender.values()))

    def take(self, sender: str) -> LimitedConnection:
        """Take a place for a sender."""
        if len(self) >= self._most:
            self._make_room(sender)
        place = LimitedConnection()
        self._by_sender.setdefault(sender, {})[place] = None
        return place

    def leave(self, sender: str, place: LimitedConnection) -> None:
        """Give a place back; one that made room is gone already."""
        place.is_taken = False
        own = self._by_sender.get(sender, {})
        own.pop(place, None)
        if not own:
            self._by_sender.pop(sender, None)

    def _make_room(self, sender: str) -> None:
        greediest = max(self._by_sender, key=lambda one: len(self._by_sender[one]))
        if len(self._by_sender[greediest]) <= len(self._by_sender.get(sender, ())) + 1:
            raise Unavailable("too many streams are open", remedy="ask for the pages themselves, or try again later")
        oldest = next(iter(self._by_sender[greediest]))
        self.leave(greediest, oldest)
        oldest.on_loss()


class Polls:
    """Long polls under way.

    Whoever waits holds a connection that others cannot have, so only so many strangers wait at a time, shared out by
    sender. Who finds no room is answered at once, and so is who has to make some; both ask again. Shufflers come by the
    private listener, and always wait.

    strangers_max: at a time.
    """

    def __init__(self, strangers_max: int = POLLS_MAX) -> None:
        self._limit = ConnectionLimit(strangers_max)

    async def wait(self, experiment: Experiment, seconds: float, sender: str | None) -> None:
        """Return once another round is published, the time is up, or at once where there is no room.

        sender: the stranger who waits; None: a shuffler or an operator.
        """
        if sender is None:
            await experiment.next_publication(seconds)
            return
        try:
            place = self._limit.take(sender)
        except Unavailable:
            return
        waiting = asyncio.ensure_future(experiment.next_publication(seconds))
        place.on_loss = waiting.cancel
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
            self._limit.leave(sender, place)
