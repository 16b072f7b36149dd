"""Long polls: requests that wait for the next policy."""

import asyncio
from typing import Final

from privateer_core.errors import Unavailable
from privateer_server.api.seats import Seats
from privateer_server.experiment import Experiment

STRANGERS_MAX: Final = 128
"""Strangers who may wait at a time: a few of the connections that the public listener has."""


class Polls:
    """Long polls under way.

    Whoever waits holds a connection that others cannot have, so only so many strangers wait at a time, shared out by
    sender. Who finds no room is answered at once, and so is who has to make some; both ask again. Shufflers come by the
    private listener, and always wait.

    Parameters
    ----------
    strangers_max
        At a time.
    """

    def __init__(self, strangers_max: int = STRANGERS_MAX) -> None:
        self._seats = Seats(strangers_max)

    async def wait(self, experiment: Experiment, seconds: float, sender: str | None) -> None:
        """Return once another round is published, the time is up, or at once where there is no room.

        Parameters
        ----------
        sender
            The stranger who waits; None: a shuffler or an operator.
        """
        if sender is None:
            await experiment.next_publication(seconds)
            return
        try:
            seat = self._seats.take(sender)
        except Unavailable:
            return
        waiting = asyncio.ensure_future(experiment.next_publication(seconds))
        seat.on_loss = waiting.cancel
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
            self._seats.leave(sender, seat)
