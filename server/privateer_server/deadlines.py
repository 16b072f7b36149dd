"""Rounds that are over without a further report: closed, or given up, when their time has come."""

import asyncio
import logging
from typing import Final

from privateer.clock import Clock, SystemClock
from privateer_server.experiments import Experiments
from privateer_server.intake import Intake
from privateer_server.rounds import OpenRound

_LOOK_SECONDS: Final = 0.5
_RETURN_SECONDS: Final = 60
"""Twice the longest pause between a shuffler's attempts to deliver."""
_log = logging.getLogger("privateer.server")


class Deadlines:
    """Looks at the open rounds twice a second. What it finds over goes through the intake, as reports do.

    Deadlines are published with their rounds, so a restart forgets none. A shuffler may hold a batch that it could not
    deliver while the server was away, so it has a minute after a start to come again.
    """

    def __init__(self, experiments: Experiments, intake: Intake, clock: Clock | None = None) -> None:
        self._experiments, self._intake, self._clock = experiments, intake, clock or SystemClock()
        self._started = self._clock.now()
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._watch = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._watch:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Have every round that is over closed or given up."""
        now = self._clock.now()
        for experiment in self._experiments:
            if experiment.current.is_over(now) and not self._is_awaited(experiment.current, now):
                name = experiment.current.round.experiment
                try:
                    await self._intake.expire(name)
                except Exception as error:  # one experiment must not keep others from their deadlines
                    _log.error("experiment %s: its round is over but not closed (%s)", name, type(error).__name__)

    def _is_awaited(self, current: OpenRound, now: float) -> bool:
        """Whether a shuffler may be about to deliver the round, since the server was away."""
        return current.round.model == "shuffle" and now < self._started + _RETURN_SECONDS
