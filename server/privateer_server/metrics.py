"""Metrics for operators; labels are names of experiments, reasons, stages and templates, never anything of a person."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

from privateer_core.errors import Unopenable
from privateer_core.serving.http.timing import BUCKETS, Answered
from privateer_server.store.records import RoundUpdate

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]
_STAGES: Final = ("open", "lock", "add", "commit", "learn", "probe")
_STAGE_BUCKETS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)

_Trace = Callable[[str, AbstractContextManager[object]], AbstractContextManager[object]]


class _Reasons(dict[str, Counter]):
    """The counters of refusals by reason: finding one by its label costs as much as refusing an upload."""

    def __init__(self, refused: Counter) -> None:
        super().__init__()
        self._refused = refused

    def __missing__(self, reason: str) -> Counter:
        counter = self[reason] = self._refused.labels(reason)
        return counter


class ServerMetrics:
    """The metrics that one server counts and times.

    trace: returns what also traces a stage that is timed.
    """

    def __init__(self, trace: _Trace = lambda _, timed: timed) -> None:
        self._trace = trace
        self.registry = CollectorRegistry()  # where they are, and other metrics of this server
        self._accepted = self._counter("reports_accepted", "Reports counted.")
        self._refused = self._counter("reports_refused", "Refusals.", "reason")
        self._reasons = _Reasons(self._refused)
        self._unopenable = self._counter("reports_unopenable", "Reports that did not open.", "experiment")
        self._rounds = self._counter("rounds_closed", "Rounds that ended, learned from or given up.")
        self._releases = self._counter("releases", "Rounds learned from.", "experiment")
        self._batches = self._counter("batches", "Batches taken.")
        self._requests = Histogram(
            "privateer_request_seconds",
            "From the last byte of a request to the first of its answer; ?wait are long polls.",
            ["method", "route", "status"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._timed: dict[tuple[str, str, str], Histogram] = {}
        self._stages = Histogram(
            "privateer_stage_seconds",
            "A group of reports opened, added or committed, and the wait for a lock; a round learned from; a probe.",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=self.registry,
        )
        for name in _STAGES:  # what is first seen at 1 is no increase to Prometheus
            self._stages.labels(name)

    def follow(self, change: RoundUpdate) -> None:
        """Count what a committed change did."""
        self._accepted.inc(change.counted)
        self.refuse(change.refused)
        # What a shuffler took from somebody who sent junk.
        if junk := change.refused.get(Unopenable.slug):
            self._unopenable.labels(change.experiment).inc(junk)
        if change.following:
            self._rounds.inc()
            if change.taken:
                self._releases.labels(change.experiment).inc()

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Count refusals by reason."""
        for reason, count in reasons.items():
            self._reasons[reason].inc(count)

    def take_batch(self) -> None:
        """Count a batch."""
        self._batches.inc()

    def answer(self, answered: Answered) -> None:
        """Count an answer by how long it took."""
        labels = (answered.method, answered.route, answered.status_class)
        timed = self._timed.get(labels)
        if timed is None:  # finding it by its labels costs as much as a tenth of a report
            timed = self._timed[labels] = self._requests.labels(*labels)
        timed.observe(answered.seconds)

    def stage(self, name: str) -> AbstractContextManager[object]:
        """Time what is done in the context, one of `_STAGES`."""
        return self._trace(name, self._stages.labels(name).time())

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"privateer_{name}", text, labels, registry=self.registry)
