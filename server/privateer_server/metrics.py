"""Counters for operators; labels are names of experiments and reasons, never anything of a person."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from privateer.errors import Unopenable
from privateer_server.store import Change


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._accepted = Counter("privateer_reports_accepted", "Reports counted.", registry=self._registry)
        self._refused = Counter("privateer_reports_refused", "Refusals.", ["reason"], registry=self._registry)
        self._unopenable = Counter(
            "privateer_reports_unopenable", "Reports that did not open.", ["experiment"], registry=self._registry
        )
        self._rounds = Counter("privateer_rounds_closed", "Rounds learned from.", registry=self._registry)
        self._batches = Counter("privateer_batches", "Batches taken.", registry=self._registry)
        self._version = Gauge("privateer_version", "Policy version.", ["experiment"], registry=self._registry)

    def follow(self, change: Change, accepted: int) -> None:
        """Count what a committed change did, which accepted so many reports."""
        self._accepted.inc(accepted)
        self.refuse(change.refused)
        # What a shuffler took from somebody who sent junk.
        if junk := change.refused.get(Unopenable.slug):
            self._unopenable.labels(change.experiment).inc(junk)
        if change.following:
            self._rounds.inc()

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Count refusals by reason."""
        for reason, count in reasons.items():
            self._refused.labels(reason).inc(count)

    def take_batch(self) -> None:
        """Count a batch."""
        self._batches.inc()

    def text(self, versions: Mapping[str, int]) -> bytes:
        """Return all metrics in Prometheus' text format, with the current version of each experiment."""
        self._version.clear()  # deleted experiments have none
        for experiment, version in versions.items():
            self._version.labels(experiment).set(version)
        return generate_latest(self._registry)
