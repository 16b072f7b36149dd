"""Metrics for operators. No label says anything of a device."""

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from privateer_core.serving.http.timing import BUCKETS, Answered
from privateer_core.wire.token_keys import TokenKey

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]
_PREFIX: Final = "privateer_issuer_"


class IssuerMetrics:
    """The metrics of one issuer, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._issued = Counter(f"{_PREFIX}tokens_issued", "Tokens signed", ["experiment"], registry=self._registry)
        self._refused = Counter(
            f"{_PREFIX}requests_refused", "Requests for tokens refused, by reason", ["reason"], registry=self._registry
        )
        self._seconds = Histogram(
            f"{_PREFIX}request_seconds",
            "From the last byte of a request to the first of its answer",
            ["method", "route", "status"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._begun = Gauge(
            f"{_PREFIX}key_timestamp_seconds", "When the newest key began", ["experiment"], registry=self._registry
        )
        self._ends = Gauge(
            f"{_PREFIX}key_expiry_timestamp_seconds", "When it expires", ["experiment"], registry=self._registry
        )

    def issue(self, experiment: str) -> None:
        """Count a token."""
        self._issued.labels(experiment).inc()

    def refuse(self, reason: str) -> None:
        """Count a request that was refused."""
        self._refused.labels(reason).inc()

    def answer(self, one: Answered) -> None:
        """Time an answer."""
        self._seconds.labels(one.method, one.route, one.status_class).observe(one.seconds)

    def watch_keys(self, newest: Callable[[], dict[str, TokenKey]]) -> None:
        """Show the times of the newest keys."""
        for name in newest():
            self._begun.labels(name).set_function(partial(lambda name: newest()[name].not_before, name))
            self._ends.labels(name).set_function(partial(lambda name: newest()[name].not_after, name))

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show what ``value`` returns."""
        Gauge(_PREFIX + name, text, registry=self._registry).set_function(value)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)
