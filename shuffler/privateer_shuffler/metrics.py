"""Metrics for operators. No label reveals anything about a report but the reason of its refusal.

A count that moved with each upload would reveal to whoever watches it when somebody reported. So accepted reports are
counted when their batch is forwarded or dropped, held ones in tenths of a batch, refused ones in tens; and what else is
shown here does not move with an upload.
"""

from collections import Counter as Accumulator
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

from privateer_core.serving.timing import Answered
from privateer_shuffler.uploads import UploadTimes

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]
_STEP: Final = 10


class Metrics:
    """The metrics of one shuffler, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.forwarded = self._counter("reports_forwarded", "Reports of batches that the server has")
        self.dropped = self._counter(
            "reports_dropped", "Held reports dropped because the server closed their round, in tenths of a batch"
        )
        self.batches = self._counter("batches_forwarded", "Batches that the server has")
        self.failures = self._counter("forwarding_failures", "Attempts to deliver a batch that failed")
        self.unfollowed = self._counter("following_failures", "Attempts to learn of the next round that failed")
        self._refused = Counter(
            "privateer_shuffler_reports_refused",
            "Reports refused, by reason, in tens",
            ["reason"],
            registry=self._registry,
        )
        self._unshown: Accumulator[str] = Accumulator()
        self._uploads = UploadTimes(_STEP)
        self._registry.register(self._uploads)

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Count refused reports by reason."""
        for reason, reports in reasons.items():
            tens, self._unshown[reason] = divmod(self._unshown[reason] + reports, _STEP)
            if tens:
                self._refused.labels(reason).inc(tens * _STEP)

    def answer(self, experiment: str, answered: Answered) -> None:
        """Time an upload; shown once its batch is delivered, or with nine others that were refused."""
        self._uploads.add(experiment, answered)

    def deliver(self, experiment: str, reports: int) -> None:
        """Count a batch that the server has, and show how long its uploads took."""
        self.batches.inc()
        self.forwarded.inc(reports)
        self._uploads.show(experiment)

    def drop(self, experiment: str, reports: int) -> None:
        """Count held reports that are dropped, in tenths of a batch. The times of their uploads would tell how many."""
        self.dropped.inc(reports)
        self._uploads.forget(experiment)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show what ``value`` returns."""
        Gauge(f"privateer_shuffler_{name}", text, registry=self._registry).set_function(value)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"privateer_shuffler_{name}", text, registry=self._registry)
