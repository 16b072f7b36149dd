"""Rounds that are over without a further report: closed, or given up, when their time has come."""

import asyncio
import logging
from typing import Final

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.serving.process import Background
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.rounds.open_round import timed

_LOOK_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 60
_LATE_LOOKS: Final = 3
"""A round is given up when so many looks, over so long, have found it late: longer than a shuffler pauses between two
attempts to deliver, and than a machine that slept takes to answer what came meanwhile."""
_SETTLING_SECONDS: Final = 60
"""After a start the clock may still be set right; what was open before goes by it until then."""
_log = logging.getLogger("privateer.server")


class Deadlines:
    """Looks at the open rounds twice a second. What it finds over goes through the intake, as reports do.

    Deadlines are published with their rounds, so a restart forgets none. Within a process they go by the monotonic
    clock: setting the time of day closes no round, and keeps none open.
    """

    def __init__(self, experiments: Experiments, intake: Intake, clock: Clock, background: Background) -> None:
        self._experiments, self._intake, self._clock, self._background = experiments, intake, clock, background
        self._started = clock.monotonic()
        self._before = {experiment.current.digest for experiment in experiments}
        self._late: dict[bytes, tuple[float, int]] = {}
        self._expiring: set[str] = set()

    async def run(self) -> None:
        """Look until the task is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Have every round that is over closed or given up; one that takes its time keeps no other waiting."""
        now = self._clock.monotonic()
        for experiment in self._experiments:
            if experiment.name in self._expiring:
                continue
            if now < self._started + _SETTLING_SECONDS and experiment.current.digest in self._before:
                experiment.current = timed(experiment.current, self._clock)
            may_close = self._intake.running and now >= max(experiment.retry_at, experiment.leased_until)
            if may_close and self._is_over(experiment, now):
                self._expiring.add(experiment.name)
                self._background.start(self._expire(experiment.name))

    def _is_over(self, experiment: Experiment, now: float) -> bool:
        current = experiment.current
        if current.is_unlearned or (not current.taken and current.is_due(now, current.received)):
            return True
        if current.given_up or current.is_ended(now):
            return True
        if current.taken or not current.is_given_up(now):
            self._late.pop(current.digest, None)
            return False
        since, looks = self._late.pop(current.digest, (now, 0))
        if now >= since + _LATE_SECONDS and looks + 1 >= _LATE_LOOKS:
            return True
        self._late[current.digest] = since, looks + 1
        return False

    async def _expire(self, name: str) -> None:
        try:
            await self._intake.expire(name)
        except (Unavailable, NotFound):
            return  # the intake has logged why, and the next look tries again; or somebody has deleted the experiment
        except Exception as error:  # one experiment must not keep others from their deadlines
            _log.error("experiment %s: its round is over but not closed (%s)", name, trace(error))
        finally:
            self._expiring.discard(name)
