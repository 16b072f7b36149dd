"""Follows what other servers on the same database do."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.logs import trace
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.store.records import TRANSIENT, ExperimentState

if TYPE_CHECKING:
    from privateer_core.serving.store.postgres import Notifications

_POLL_SECONDS: Final = 1.0
"""Between two looks without a notification: what others count notifies nobody."""
_log = logging.getLogger("privateer.server")


class Follower:
    """Brings experiments up to what is in the store, at each notification and once a second.

    Where it matters, nobody relies on it: whatever counts or changes something reads first where the experiment stands.
    """

    def __init__(self, data: Data, notifications: "Notifications", experiments: Experiments, intake: Intake) -> None:
        self._store, self._notifications, self._experiments, self._intake = (
            data.store,
            notifications,
            experiments,
            intake,
        )
        self._is_failing = False

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        while True:
            await asyncio.to_thread(self._notifications.wait, _POLL_SECONDS)
            try:
                await self.look()
                self._is_failing = False
            except TRANSIENT as error:
                if not self._is_failing:
                    _log.error("the database cannot be read, and what other servers do is not seen (%s)", trace(error))
                self._is_failing = True
                await asyncio.sleep(_POLL_SECONDS)

    async def look(self) -> None:
        """Follow what has changed since the last look."""
        standings = await asyncio.to_thread(self._store.standings)
        for experiment in self._experiments:
            if experiment.name not in standings:
                await self._experiments.check_deleted(experiment.name)
        for name, standing in standings.items():
            try:
                experiment = await self._experiments.find(name)
                if _differs(experiment, standing) and not self._intake.is_closing(name):
                    async with self._intake.alone(name):
                        pass  # it is read there
            except (NotFound, Unavailable):
                continue  # deleted meanwhile, or the intake has said why


def _differs(experiment: Experiment, standing: ExperimentState) -> bool:
    current = experiment.current
    known = (current.digest, current.received, current.taken, current.given_up, current.plan, experiment.shuffler)
    there = (standing.digest, standing.received, standing.taken, standing.given_up, standing.plan, standing.shuffler)
    return known != there or _counts(experiment.refused) != _counts(standing.refused)


def _counts(refused: Mapping[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in refused.items() if count}
