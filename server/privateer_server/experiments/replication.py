"""Replication of the changes that other servers make in the same database."""

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.logs import trace
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.store.records import TRANSIENT_ERRORS, ExperimentState

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications

_POLL_SECONDS: Final = 1.0  # the interval of refreshes without a notification: counted reports are not notified
_log = logging.getLogger("privateer.server")


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
    """Whether the stored state of an experiment differs from the one in memory."""
    current = experiment.current
    local_facts = (current.digest, current.received, current.state, current.plan, experiment.shuffler)
    stored_facts = (state.digest, state.received, state.state, state.plan, state.shuffler)
    return local_facts != stored_facts or experiment.refused != Counter(state.refused)  # which ignores counts of 0
