"""Metrics for operators. No label is about a device."""

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import asdict
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from privateer_core.serving.http.answer import BUCKET_BOUNDS_SECONDS, AnswerTiming
from privateer_core.serving.logs import BUILD
from privateer_core.wire.token_keys import TokenKey

# Without this every counter would also publish the time of its first event.
disable_created_metrics()  # type: ignore[no-untyped-call]
_PREFIX: Final = "privateer_issuer_"


class IssuerMetrics:
    """The metrics of an issuer, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        Info(f"{_PREFIX}build", "Which build this is", registry=self._registry).info(asdict(BUILD))
        self._issued = Counter(f"{_PREFIX}tokens_issued", "Tokens signed", ["experiment"], registry=self._registry)
        self._refused = Counter(
            f"{_PREFIX}requests_refused", "Requests for tokens refused, by reason", ["reason"], registry=self._registry
        )
        self._durations = Histogram(
            f"{_PREFIX}http_request_duration_seconds",
            "From the last byte of a request to the first of its answer",
            ["method", "route", "status"],
            buckets=BUCKET_BOUNDS_SECONDS,
            registry=self._registry,
        )

    def issue(self, experiment: str) -> None:
        """Count an issued token."""
        self._issued.labels(experiment).inc()

    def refuse(self, reason: str) -> None:
        """Count a refused request, by reason."""
        self._refused.labels(reason).inc()

    def answer(self, answered: AnswerTiming) -> None:
        """Record the duration of a response."""
        self._durations.labels(answered.method, answered.route, answered.status_class).observe(answered.seconds)

    def watch_keys(self, newest: Callable[[], dict[str, TokenKey]]) -> None:
        """Register gauges of the newest keys' start and expiry times."""
        for gauge_name, description, field in (
            ("key_timestamp_seconds", "When the newest key began", "not_before"),
            ("key_expiry_timestamp_seconds", "When it expires", "not_after"),
        ):
            gauge = Gauge(_PREFIX + gauge_name, description, ["experiment"], registry=self._registry)
            for name in newest():
                read_time = partial(lambda name, field: getattr(newest()[name], field), name, field)
                gauge.labels(name).set_function(read_time)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Register a gauge with the result of ``value``."""
        Gauge(_PREFIX + name, description, registry=self._registry).set_function(value)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)
