"""Metrics for operators; labels are names of experiments, reasons, stages and templates, never participants' data."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Final

from msgspec.structs import asdict
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from privateer_core.errors import DecryptionFailed
from privateer_core.serving.http.answer import BUCKET_BOUNDS_SECONDS, AnswerTiming
from privateer_core.serving.logs import BUILD
from privateer_server.rounds.states import RoundState
from privateer_server.store.records import RoundUpdate

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]
_LEARN: Final = "learn"
_STAGES: Final = ("open", "verify", "lock", "add", "commit", _LEARN, "probe")
_STAGE_BUCKETS: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)

_Trace = Callable[[str, AbstractContextManager[object]], AbstractContextManager[object]]


class ServerMetrics:
    """The counters and timers of a server."""

    def __init__(self, trace: _Trace = lambda _, timed: timed) -> None:
        self._trace = trace
        self.registry = CollectorRegistry()  # the registry of all metrics of this server
        ProcessCollector(registry=self.registry)
        Info("privateer_build", "Which build this is.", registry=self.registry).info(asdict(BUILD))
        self._accepted = self._counter("reports_accepted", "Reports counted.")
        # A look-up by label costs as much as refusing an upload, or as a tenth of counting a report.
        self._refused = cache(self._counter("reports_refused", "Refusals.", "reason").labels)
        self._unopenable = self._counter("decryption_failures", "Reports that did not open.", "experiment")
        self._rounds = self._counter("rounds_closed", "Rounds that ended, learned from or given up.")
        self._releases = self._counter("releases", "Rounds learned from.", "experiment")
        self._batches = self._counter("batches", "Batches taken.")
        requests = Histogram(
            "privateer_http_request_duration_seconds",
            "From the last byte of a request to the first of its answer; ?wait are long polls.",
            ["method", "route", "status"],
            buckets=BUCKET_BOUNDS_SECONDS,
            registry=self.registry,
        )
        self._requests = cache(requests.labels)
        stages = Histogram(
            "privateer_stage_seconds",
            "Reports opened, verified, added or committed, and the wait for a lock; a round learned from; a probe.",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=self.registry,
        )
        # The durations of stages by name. All are there from the start: what is first seen at 1 is no increase.
        self.stages = {name: stages.labels(name) for name in _STAGES}

    def count_change(self, change: RoundUpdate) -> None:
        """Count the reports, refusals and closed rounds of a committed change."""
        self._accepted.inc(change.counted)
        self.count_refusals(change.refused)
        # Invalid messages that a shuffler has forwarded.
        if n_unopenable := change.refused.get(DecryptionFailed.slug):
            self._unopenable.labels(change.experiment).inc(n_unopenable)
        if change.following:
            self._rounds.inc()
            if change.state is RoundState.CLOSED:
                self._releases.labels(change.experiment).inc()

    def count_refusals(self, reasons: Mapping[str, int]) -> None:
        """Count refusals by reason."""
        for reason, count in reasons.items():
            self._refused(reason).inc(count)

    def count_batch(self) -> None:
        """Count a delivered batch."""
        self._batches.inc()

    def observe_answer(self, answered: AnswerTiming) -> None:
        """Record the duration of an answer."""
        self._requests(answered.method, answered.route, answered.status_class).observe(answered.seconds)

    def time_learning(self) -> AbstractContextManager[object]:
        """Return a context that times and traces the stage in which a round is learned from."""
        return self._trace(_LEARN, self.stages[_LEARN].time())

    def export_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"privateer_{name}", text, labels, registry=self.registry)
