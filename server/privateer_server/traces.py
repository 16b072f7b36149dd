"""Traces for operators, by OTLP over HTTP with JSON (OpenTelemetry Protocol 1.x): what operators and shufflers do.

Nothing is traced that a single person's device brings about at a moment of its own, but the end of a round, which its
publication tells everybody. The protocol's own library would add the machine's name, the process and whatever its
variables say, and ten packages; so the few lines of JSON are made here, and hold what `Span` has.
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
from privateer_core.serving.http.timing import Answered
from privateer_server.api.endpoints import BatchesEndpoint

VARIABLE: Final = "PRIVATEER_TRACES"
STAGES: Final = frozenset({"learn"})
"""Those that belong to a round: the others may belong to one report."""
_PAGE: Final = "/v1/traces"
_KEPT: Final = 2048
_SECONDS: Final = 5.0
_SECOND: Final = 1_000_000_000
_INTERNAL, _SERVER = 1, 2
"""Kinds of spans."""
_ERROR: Final = 2
_FAULT: Final = 500
_SERVICE: Final = "privateer-server"
_log = logging.getLogger("privateer.traces")


class Span(NamedTuple):
    """A span: something that took some time."""

    name: str  # a method with the template of a page, or a stage
    kind: int  # whether it answers a request
    # began, ended: in nanoseconds since 1970
    began: int
    ended: int
    about: Mapping[str, str | int] = {}  # method, template and status of a request
    failed: bool = False  # whether it ended in an error of ours


def collector(url: str) -> str:
    """Return the address of a collector."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or parts.query or parts.fragment:
        remedy = "for example http://127.0.0.1:4318"
        raise SpecError("is no address of a collector of traces (OTLP over HTTP)", field=VARIABLE, remedy=remedy)
    return url.rstrip("/").removesuffix(_PAGE)


class Traces:
    """Spans that wait for the collector. If it is away they are dropped, and nothing else waits for it.

    url: the collector's address; empty: nothing is traced.
    """

    def __init__(self, url: str) -> None:
        self._url = collector(url) + _PAGE if url else ""
        self._spans: deque[Span] = deque(maxlen=_KEPT if url else 0)
        # The environment's proxies are not asked: spans go to the collector alone.
        self._opener = build_opener(ProxyHandler({}))
        self._is_away = False

    def answer(self, answered: Answered) -> None:
        """Take a request that bore an operator's token, or brought a batch; of all others nothing is kept."""
        if not answered.by and answered.route != BatchesEndpoint.route:
            return
        about: dict[str, str | int] = {
            "http.request.method": answered.method,
            "http.route": answered.route,
            "http.response.status_code": answered.status,
        }
        name, ended = f"{answered.method} {answered.route}", time.time_ns()
        began = ended - int(answered.seconds * _SECOND)
        self._spans.append(Span(name, _SERVER, began, ended, about, answered.status >= _FAULT))

    @contextmanager
    def stage(self, name: str, timed: AbstractContextManager[object]) -> Iterator[None]:
        """Trace what is done in the context, besides timing it, if it is a stage of a whole round."""
        began, failed = time.time_ns(), True
        try:
            with timed:
                yield
            failed = False
        finally:
            if name in STAGES:
                self._spans.append(Span(name, _INTERNAL, began, time.time_ns(), failed=failed))

    async def run(self) -> None:
        """Send what there is now and then, until the task is cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            await asyncio.to_thread(self.send)

    def send(self) -> None:
        """Send what there is."""
        spans = [self._spans.popleft() for _ in range(len(self._spans))]
        if not spans:
            return
        request = Request(self._url, msgspec.json.encode(document(spans)), {"Content-Type": "application/json"})  # noqa: S310
        try:
            with self._opener.open(request, timeout=_SECONDS):
                self._is_away = False
        except (OSError, ValueError, HTTPException):
            if not self._is_away:
                _log.warning("the collector of traces does not take them: they are dropped until it does")
            self._is_away = True


def document(spans: Sequence[Span]) -> dict[str, Any]:
    """Return spans as an ``ExportTraceServiceRequest``, in the protocol's JSON."""
    rows = [_row(one) for one in spans]
    resource = {"attributes": _attributes({"service.name": _SERVICE})}
    scope = {"scope": {"name": "privateer"}, "spans": rows}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _row(span: Span) -> dict[str, Any]:
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.began),
        "endTimeUnixNano": str(span.ended),
        "attributes": _attributes(span.about),
        "status": {"code": _ERROR} if span.failed else {},
    }


def _attributes(about: Mapping[str, str | int]) -> list[dict[str, Any]]:
    # 64-bit integers are text in the protocol's JSON.
    kinds = {str: "stringValue", int: "intValue"}
    return [{"key": key, "value": {kinds[type(value)]: str(value)}} for key, value in about.items()]
