"""Long polls: requests that wait for the next policy."""

from typing import Final

from privateer_server.experiment import Experiment

STRANGERS_MAX: Final = 128
"""Strangers who may wait at a time: a few of the connections that the public listener has."""


class Polls:
    """Long polls under way.

    Whoever waits holds a connection that others cannot have, so only so many strangers wait at a time. The next ones
    are answered at once, and ask again. Shufflers come by the private listener, and always wait.

    Parameters
    ----------
    strangers_max
        At a time.
    """

    def __init__(self, strangers_max: int = STRANGERS_MAX) -> None:
        self._free = strangers_max

    async def wait(self, experiment: Experiment, seconds: float, *, is_stranger: bool) -> None:
        """Return once another round is published, the time is up, or at once where there is no room."""
        if not is_stranger:
            await experiment.next_publication(seconds)
        elif self._free:
            self._free -= 1
            try:
                await experiment.next_publication(seconds)
            finally:
                self._free += 1
