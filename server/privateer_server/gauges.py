"""Gauges of a server, set when somebody looks: its experiments, what waits, its keys and its disks."""

import shutil
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, get_args

from prometheus_client import Gauge

from privateer_core.answer.export import Status
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.intake import Intake
from privateer_server.metrics import ServerMetrics

_EXPERIMENT: Final = ("experiment",)


class Gauges:
    """Metrics that are read when they are shown. Times are given as they were: whoever reads them knows their ages."""

    def __init__(self, metrics: ServerMetrics, data: Data, experiments: Experiments, intake: Intake) -> None:
        self._registry, self._data, self._experiments, self._intake = metrics.registry, data, experiments, intake
        self._version = self._gauge("version", "Policy version.", *_EXPERIMENT)
        self._opened = self._gauge(
            "round_opened_timestamp_seconds", "When the open round was published, and its key made.", *_EXPERIMENT
        )
        self._statuses = self._gauge("experiments", "Experiments by status.", "status")
        self._unclosed = self._gauge("rounds_not_closed", "Rounds that are over, and whose closing has failed.")
        self._waiting = self._gauge("requests_waiting", "Uploads and batches that wait for their answer.")
        self._oldest = self._gauge("oldest_request_seconds", "How long the oldest of them has waited.")
        self._unerased = self._gauge("keys_not_erased", "Keys of closed rounds that the disk did not let go.")
        self._counting = self._gauge("counting", "1 as long as reports are counted.")
        self._watch_disks(data.folders)

    def refresh(self) -> None:
        """Read what is shown next."""
        self._version.clear()  # deleted experiments have none
        self._opened.clear()
        for one in self._experiments:
            self._version.labels(one.name).set(one.current.round.version)
            if one.current.round.batch:
                self._opened.labels(one.name).set(one.current.opened)
        statuses = Counter(one.status for one in self._experiments)
        for status in get_args(Status):
            self._statuses.labels(status).set(statuses[status])
        self._unclosed.set(sum(self._experiments.is_put_off(one) for one in self._experiments))
        self._waiting.set(self._intake.waiting)
        self._oldest.set(self._intake.oldest_wait)
        self._unerased.set(self._data.keys.unerased)
        self._counting.set(self._intake.running)

    def _watch_disks(self, folders: Mapping[str, Path]) -> None:
        text = "Free bytes of the disk with the data, and of that with the journal."
        free = self._gauge("disk_free_bytes", text, "of")
        for name, folder in folders.items():
            free.labels(name).set_function(partial(_free, folder))

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"privateer_{name}", text, labels, registry=self._registry)


def _free(folder: Path) -> float:
    return shutil.disk_usage(folder).free
