"""Metrics for operators. Of a report, labels reveal only the reason of its refusal.

A count that changed with each upload would reveal the times of reports. So accepted reports are counted when their
batch is forwarded or dropped, held reports in tenths of a batch, refused reports in tens. Durations of uploads are
shown in the same steps, and no other metric changes with an upload.
"""

from bisect import bisect_left
from collections import Counter as Accumulator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec.structs import asdict
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, disable_created_metrics, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from privateer_core.serving.http.answer import BUCKET_BOUNDS_SECONDS, AnswerTiming
from privateer_core.serving.logs import BUILD

_ACCEPTED_CLASS: Final = "2xx"
_BUCKET_LABELS: Final = (*map(str, BUCKET_BOUNDS_SECONDS), "+Inf")
_SHOWN_STEP: Final = 10


class _Times:
    """Durations of uploads: their number in each bucket, and the sum of their seconds."""

    def __init__(self) -> None:
        self.buckets = [0] * len(_BUCKET_LABELS)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count an upload of this duration."""
        self.buckets[bisect_left(BUCKET_BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds

    def add_all(self, times: "_Times") -> None:
        """Add the uploads of ``times``."""
        self.buckets = [count + added for count, added in zip(self.buckets, times.buckets, strict=True)]
        self.seconds += times.seconds

    def __len__(self) -> int:
        return sum(self.buckets)


class UploadTimes(Collector):
    """A histogram that changes when a batch is delivered, as the count of forwarded reports does.

    step: number of refused uploads that are shown together.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._shown_times: defaultdict[str, _Times] = defaultdict(_Times)
        self._held_times: defaultdict[str, _Times] = defaultdict(_Times)
        self._refused: defaultdict[str, _Times] = defaultdict(_Times)

    def add(self, experiment: str, timing: AnswerTiming) -> None:
        """Count an upload for an experiment."""
        status_class = timing.status_class
        if status_class == _ACCEPTED_CLASS:
            self._held_times[experiment].add(timing.seconds)
            return
        refused_times = self._refused[status_class]
        refused_times.add(timing.seconds)
        if len(refused_times) == self._step:
            self._shown_times[status_class].add_all(self._refused.pop(status_class))

    def show(self, experiment: str) -> None:
        """Show the uploads of a delivered batch."""
        if held_times := self._held_times.pop(experiment, None):
            self._shown_times[_ACCEPTED_CLASS].add_all(held_times)

    def forget(self, experiment: str) -> None:
        """Drop the uploads of a dropped batch."""
        self._held_times.pop(experiment, None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram."""
        text = "From the last byte of an upload to the first of its answer, shown with its batch; refused ones in tens"
        family = HistogramMetricFamily("privateer_shuffler_upload_seconds", text, labels=["status"])
        for status_class, times in sorted(self._shown_times.items()):
            totals = [sum(times.buckets[: last + 1]) for last in range(len(_BUCKET_LABELS))]
            family.add_metric([status_class], list(zip(_BUCKET_LABELS, totals, strict=True)), times.seconds)
        yield family


# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ShufflerMetrics:
    """The metrics of a shuffler, in a separate registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        # No other metrics of the process: processor time, memory and open files would reveal single uploads.
        Gauge("process_start_time_seconds", "When the process began", registry=self._registry).set_to_current_time()
        Info("privateer_shuffler_build", "Which build this is", registry=self._registry).info(asdict(BUILD))
        self.forwarded = self._make_counter("reports_forwarded", "Reports of batches that the server has")
        dropped_text = "Held reports dropped because the server closed their round, in tenths of a batch"
        self.dropped = self._make_counter("reports_dropped", dropped_text)
        self.batches = self._make_counter("batches_forwarded", "Batches that the server has")
        self.failures = self._make_counter("forwarding_failures", "Attempts to deliver a batch that failed")
        self.unfollowed = self._make_counter("following_failures", "Attempts to learn of the next round that failed")
        self._refused = self._make_counter("reports_refused", "Reports refused, by reason, in tens", "reason")
        self._unshown: Accumulator[str] = Accumulator()
        self._uploads = UploadTimes(_SHOWN_STEP)
        self._registry.register(self._uploads)

    def count_refusals(self, reasons: Mapping[str, int]) -> None:
        """Count refused reports by reason."""
        for reason, reports in reasons.items():
            n_tens, self._unshown[reason] = divmod(self._unshown[reason] + reports, _SHOWN_STEP)
            if n_tens:
                self._refused.labels(reason).inc(n_tens * _SHOWN_STEP)

    def count_upload(self, experiment: str, timing: AnswerTiming) -> None:
        """Count an upload's duration, shown once its batch is delivered, or with nine other refused uploads."""
        self._uploads.add(experiment, timing)

    def count_delivery(self, experiment: str, reports: int) -> None:
        """Count a delivered batch, and show the durations of its uploads."""
        self.batches.inc()
        self.forwarded.inc(reports)
        self._uploads.show(experiment)

    def count_dropped(self, experiment: str, reports: int) -> None:
        """Count dropped reports, in tenths of a batch, without their durations, which would reveal the exact number."""
        self.dropped.inc(reports)
        self._uploads.forget(experiment)

    def register_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Register a gauge that shows the result of ``value``."""
        Gauge(f"privateer_shuffler_{name}", text, registry=self._registry).set_function(value)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _make_counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"privateer_shuffler_{name}", text, labels, registry=self._registry)
