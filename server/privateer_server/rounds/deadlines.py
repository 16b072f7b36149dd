"""Deadlines of rounds: rounds that are over without a further report are closed, or given up."""

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
from privateer_server.rounds.open_round import with_deadlines
from privateer_server.rounds.states import RoundEvent, RoundState

_CHECK_INTERVAL_SECONDS: Final = 0.5
_MIN_LATE_SECONDS: Final = 60
_MIN_LATE_CHECKS: Final = 3
"""A round is given up after this number of late checks over that time: longer than a shuffler pauses between two
attempts to deliver, and than a machine that slept takes to answer pending requests."""
_SETTLING_SECONDS: Final = 60
"""After a start the clock may still be corrected; rounds that were open before follow it until then."""
_log = logging.getLogger("privateer.server")


class Deadlines:
    """The periodic check of the open rounds, twice a second, which ends overdue rounds through the intake.

    Deadlines are published with their rounds, so a restart forgets none. Within a process they go by the monotonic
    clock: setting the time of day closes no round, and keeps none open.
    """

    def __init__(self, experiments: Experiments, intake: Intake, clock: Clock, background: Background) -> None:
        self._experiments, self._intake, self._clock, self._background = experiments, intake, clock, background
        self._started = clock.monotonic()
        self._initial_digests = {experiment.current.digest for experiment in experiments}
        self._late_rounds: dict[bytes, tuple[float, int]] = {}
        self._expiring: set[str] = set()

    async def run(self) -> None:
        """Check the rounds periodically until the task is cancelled."""
        while True:
            self.check_rounds()
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)

    def check_rounds(self) -> None:
        """Start tasks that close or give up every round that is over; a slow task delays no other round."""
        now = self._clock.monotonic()
        for experiment in self._experiments:
            if experiment.name in self._expiring:
                continue
            if now < self._started + _SETTLING_SECONDS and experiment.current.digest in self._initial_digests:
                experiment.current = with_deadlines(experiment.current, self._clock)
            may_close = self._intake.is_running and now >= max(experiment.retry_at, experiment.leased_until)
            if may_close and self._check_if_over(experiment, now):
                self._expiring.add(experiment.name)
                self._background.start(self._close_if_due(experiment.name))

    def _check_if_over(self, experiment: Experiment, now: float) -> bool:
        """Return whether a round is over, and count the check of a round that has waited too long for reports."""
        current = experiment.current
        if current.state is not RoundState.OPEN:
            return True
        if (event := current.event_at(now, current.received)) is not RoundEvent.EXPIRED:
            self._late_rounds.pop(current.digest, None)
            return event is not RoundEvent.REPORTED
        first_late_time, n_checks = self._late_rounds.pop(current.digest, (now, 0))
        if now >= first_late_time + _MIN_LATE_SECONDS and n_checks + 1 >= _MIN_LATE_CHECKS:
            return True
        self._late_rounds[current.digest] = first_late_time, n_checks + 1
        return False

    async def _close_if_due(self, name: str) -> None:
        """Have the intake close a round or give it up; errors are logged."""
        try:
            await self._intake.close_if_due(name)
        except (Unavailable, NotFound):
            return  # the intake has logged why, and the next check tries again; or the experiment is deleted
        except Exception as error:  # one experiment must not keep others from their deadlines
            _log.error("experiment %s: its round is over but not closed (%s)", name, trace(error))
        finally:
            self._expiring.discard(name)
