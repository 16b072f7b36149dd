"""Counts for operators. No label tells anything about a report but the reason of its refusal.

Accepted reports are counted when their batch is forwarded or given up, for the reason `Pool.shown` gives.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counters of one shuffler, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.forwarded = self._counter("reports_forwarded", "Reports of batches that the server has")
        self.dropped = self._counter("reports_dropped", "Held reports given up because the server closed their round")
        self.batches = self._counter("batches_forwarded", "Batches that the server has")
        self.failures = self._counter("forwarding_failures", "Attempts to deliver a batch that failed")
        self._refused = Counter(
            "privateer_shuffler_reports_refused", "Reports refused, by reason", ["reason"], registry=self._registry
        )

    def refused(self, reason: str, reports: int) -> None:
        """Count reports that were turned away."""
        self._refused.labels(reason).inc(reports)

    def watch_held(self, held: Callable[[], int]) -> None:
        """Show the number of reports held, as ``held`` gives it."""
        gauge = Gauge("privateer_shuffler_reports_held", "Reports held, in tenths of a batch", registry=self._registry)
        gauge.set_function(held)

    def page(self) -> bytes:
        """All counts in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"privateer_shuffler_{name}", text, registry=self._registry)
