"""Periodic tasks: overdue rounds are closed or given up, and changes by other servers are read."""

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from privateer_core.clock import Clock
from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.serving.process import Background
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.rounds.open_round import with_deadlines
from privateer_server.rounds.states import RoundEvent, RoundState
from privateer_server.store.records import TRANSIENT_ERRORS, ExperimentState

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications


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
        """Start a task that ends each round that is over; a slow task delays no other round."""
        now = self._clock.monotonic()
        for experiment in self._experiments:
            if experiment.name in self._expiring:
                continue
            if now < self._started + _SETTLING_SECONDS and experiment.current.digest in self._initial_digests:
                experiment.current = with_deadlines(experiment.current, self._clock)
            may_end = self._intake.is_running and now >= max(experiment.retry_at, experiment.leased_until)
            if may_end and self._check_round_over(experiment, now):
                self._expiring.add(experiment.name)
                self._background.start(self._end_round_if_due(experiment.name))

    def _check_round_over(self, experiment: Experiment, now: float) -> bool:
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

    async def _end_round_if_due(self, name: str) -> None:
        """Have the intake end a round that is due; errors are logged."""
        try:
            await self._intake.end_round_if_due(name)
        except (Unavailable, NotFound):
            return  # the intake has logged why, and the next check tries again; or the experiment is deleted
        except Exception as error:  # one experiment must not keep others from their deadlines
            _log.error("experiment %s: its round is over but not closed (%s)", name, trace(error))
        finally:
            self._expiring.discard(name)


_POLL_SECONDS: Final = 1.0  # the interval of refreshes without a notification: counted reports are not notified


class Follower:
    """The task that refreshes experiments from the store, at each notification and once a second.

    Correctness does not depend on it: each count or change reads the experiment's stored state first.
    """

    def __init__(self, data: Data, notifications: "Notifications", experiments: Experiments, intake: Intake) -> None:
        self._store, self._notifications, self._is_failing = data.store, notifications, False
        self._experiments, self._intake = experiments, intake

    async def run(self) -> None:
        """Refresh experiments until the task is cancelled."""
        while True:
            await asyncio.to_thread(self._notifications.wait, _POLL_SECONDS)
            try:
                await self.refresh_experiments()
                self._is_failing = False
            except TRANSIENT_ERRORS as error:
                if not self._is_failing:
                    _log.error("the database cannot be read, and what other servers do is not seen (%s)", trace(error))
                self._is_failing = True
                await asyncio.sleep(_POLL_SECONDS)

    async def refresh_experiments(self) -> None:
        """Refresh all experiments whose stored state has changed."""
        states = await asyncio.to_thread(self._store.experiment_states)
        for experiment in self._experiments:
            if experiment.name not in states:
                await self._experiments.forget_if_deleted(experiment.name)
        for name, state in states.items():
            try:
                experiment = await self._experiments.find(name)
                if _has_changed(experiment, state) and not self._intake.is_closing(name):
                    async with self._intake.lock_experiment(name):
                        pass  # the context refreshes the experiment
            except (NotFound, Unavailable):
                continue  # deleted meanwhile, or the intake has said why


def _has_changed(experiment: Experiment, state: ExperimentState) -> bool:
    current = experiment.current
    local_facts = (current.digest, current.received, current.state, current.plan, experiment.shuffler)
    stored_facts = (state.digest, state.received, state.state, state.plan, state.shuffler)
    return local_facts != stored_facts or experiment.refused != Counter(state.refused)  # which ignores counts of 0
