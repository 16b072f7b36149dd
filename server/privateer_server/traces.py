"""Traces for operators, by OTLP over HTTP with JSON (OpenTelemetry Protocol 1.x): requests of operators and shufflers.

No request of a participant's device is traced, apart from the end of a round, which is published anyway. The protocol's
own library would add the machine's name, the process, environment variables, and ten packages; so the JSON is made
here, with the fields of `Span` alone.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from privateer_core.errors import SpecError
from privateer_core.serving.http.answer import AnswerTiming
from privateer_server.api.endpoints import BatchesEndpoint

VARIABLE: Final = "PRIVATEER_TRACES_URL"
TRACED_STAGES: Final = frozenset({"learn"})  # stages of a whole round: other stages may belong to a single report
_TRACES_PATH: Final = "/v1/traces"
_MAX_QUEUED_SPANS: Final = 2048
_SEND_INTERVAL_SECONDS: Final = 5.0
_NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_INTERNAL, _SERVER = 1, 2  # kinds of spans
_ERROR_STATUS: Final = 2
_MIN_ERROR_STATUS: Final = 500
_SERVICE: Final = "privateer-server"
_log = logging.getLogger("privateer.traces")


class Span(NamedTuple):
    """A traced span of time."""

    name: str  # a method with the template of a page, or a stage
    kind: int  # the OTLP kind: internal or server
    # start_time, end_time: in nanoseconds since 1970
    start_time: int
    end_time: int
    attributes: Mapping[str, str | int] = {}  # method, template and status of a request
    has_failed: bool = False  # whether it ended in a server error


def parse_collector_address(url: str) -> str:
    """Return the base address of a collector, or refuse an invalid URL."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or parts.query or parts.fragment:
        remedy = "for example http://127.0.0.1:4318"
        raise SpecError("is no address of a collector of traces (OTLP over HTTP)", field=VARIABLE, remedy=remedy)
    return url.rstrip("/").removesuffix(_TRACES_PATH)


class Traces:
    """The queue of spans for the collector. While it is unreachable spans are dropped, and nothing waits for it.

    Without an address nothing is traced.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_collector_address(url) + _TRACES_PATH if url else ""
        self._spans: deque[Span] = deque(maxlen=_MAX_QUEUED_SPANS if url else 0)
        # The environment's proxies are not used: spans go to the collector alone.
        self._opener = build_opener(ProxyHandler({}))
        self._is_collector_down = False

    def record_answer(self, answered: AnswerTiming) -> None:
        """Record a request with an operator's token, or with a batch; other requests are not recorded."""
        if not answered.by and answered.route != BatchesEndpoint.route:
            return
        attributes: dict[str, str | int] = {
            "http.request.method": answered.method,
            "http.route": answered.route,
            "http.response.status_code": answered.status,
        }
        name, end_time = f"{answered.method} {answered.route}", time.time_ns()
        start_time = end_time - int(answered.seconds * _NANOSECONDS_PER_SECOND)
        self._spans.append(Span(name, _SERVER, start_time, end_time, attributes, answered.status >= _MIN_ERROR_STATUS))

    @contextmanager
    def trace_stage(self, name: str, timed: AbstractContextManager[object]) -> Iterator[None]:
        """Time the context with a timer, and trace it if it is a stage of a whole round."""
        start_time, has_failed = time.time_ns(), True
        try:
            with timed:
                yield
            has_failed = False
        finally:
            if name in TRACED_STAGES:
                self._spans.append(Span(name, _INTERNAL, start_time, time.time_ns(), has_failed=has_failed))

    async def run(self) -> None:
        """Send queued spans periodically, until the task is cancelled."""
        while True:
            await asyncio.sleep(_SEND_INTERVAL_SECONDS)
            await asyncio.to_thread(self.send)

    def send(self) -> None:
        """Send all queued spans to the collector."""
        spans = [self._spans.popleft() for _ in range(len(self._spans))]
        if not spans:
            return
        request = Request(self._url, msgspec.json.encode(encode_spans(spans)), {"Content-Type": "application/json"})  # noqa: S310
        try:
            with self._opener.open(request, timeout=_SEND_INTERVAL_SECONDS):
                self._is_collector_down = False
        except (OSError, ValueError, HTTPException):
            if not self._is_collector_down:
                _log.warning("the collector of traces does not take them: they are dropped until it does")
            self._is_collector_down = True


def encode_spans(spans: Sequence[Span]) -> dict[str, Any]:
    """Encode spans as an ``ExportTraceServiceRequest``, in the protocol's JSON."""
    rows = [_encode_span(span) for span in spans]
    resource = {"attributes": _encode_attributes({"service.name": _SERVICE})}
    scope = {"scope": {"name": "privateer"}, "spans": rows}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _encode_span(span: Span) -> dict[str, Any]:
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _encode_attributes(span.attributes),
        "status": {"code": _ERROR_STATUS} if span.has_failed else {},
    }


def _encode_attributes(attributes: Mapping[str, str | int]) -> list[dict[str, Any]]:
    # 64-bit integers are text in the protocol's JSON.
    type_names = {str: "stringValue", int: "intValue"}
    return [{"key": key, "value": {type_names[type(value)]: str(value)}} for key, value in attributes.items()]
