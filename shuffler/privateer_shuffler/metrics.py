"""Metrics for operators. No label reveals anything about a report but the reason of its refusal.

A count that moved with each upload would reveal to whoever watches it when somebody reported. So accepted reports are
counted when their batch is forwarded or dropped, held ones in tenths of a batch, refused ones in tens. How long uploads
take is shown in the same steps, and what else is shown here does not move with an upload.
"""

from bisect import bisect_left
from collections import Counter as Accumulator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from privateer_core.serving.http.timing import BUCKETS, Answered

_ACCEPTED: Final = "2xx"
_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")
_STEP: Final = 10


class _Times:
    """Uploads by how long they took: how many in each bucket, and their seconds in all."""

    def __init__(self) -> None:
        self.buckets = [0] * len(_BOUNDS)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def take(self, others: "_Times") -> None:
        """Count others, too."""
        self.buckets = [one + other for one, other in zip(self.buckets, others.buckets, strict=True)]
        self.seconds += others.seconds

    def __len__(self) -> int:
        return sum(self.buckets)


class UploadTimes(Collector):
    """A histogram that moves when a batch is delivered, as the count of forwarded reports does.

    step: so many refused uploads are shown at once.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._shown: defaultdict[str, _Times] = defaultdict(_Times)
        self._held: defaultdict[str, _Times] = defaultdict(_Times)
        self._refused: defaultdict[str, _Times] = defaultdict(_Times)

    def add(self, experiment: str, answered: Answered) -> None:
        """Note an upload for an experiment."""
        kind = answered.status_class
        if kind == _ACCEPTED:
            self._held[experiment].add(answered.seconds)
            return
        refused = self._refused[kind]
        refused.add(answered.seconds)
        if len(refused) == self._step:
            self._shown[kind].take(self._refused.pop(kind))

    def show(self, experiment: str) -> None:
        """Show the uploads of a batch that is delivered."""
        if held := self._held.pop(experiment, None):
            self._shown[_ACCEPTED].take(held)

    def forget(self, experiment: str) -> None:
        """Show nothing of the uploads of a batch that is dropped."""
        self._held.pop(experiment, None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram."""
        text = "From the last byte of an upload to the first of its answer, shown with its batch; refused ones in tens"
        family = HistogramMetricFamily("privateer_shuffler_upload_seconds", text, labels=["status"])
        for kind, times in sorted(self._shown.items()):
            totals = [sum(times.buckets[: end + 1]) for end in range(len(_BOUNDS))]
            family.add_metric([kind], list(zip(_BOUNDS, totals, strict=True)), times.seconds)
        yield family


# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ShufflerMetrics:
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
