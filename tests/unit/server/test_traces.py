"""Traces cover operators and shufflers, never devices: a local collector receives them."""

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.http.answer import AnswerTiming
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.traces import Span, Traces, encode_spans, parse_collector_address
from tests.support.asgi import serving
from tests.support.changes import report
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SMALL, TOKEN, Api

KEYS = {"traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"}
ABOUT = {"http.request.method", "http.route", "http.response.status_code"}


class Collector:
    """A collector of traces on this machine."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.heads: list[tuple[str, dict[str, str]]] = []
        bodies, heads = self.bodies, self.heads

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                heads.append((self.path, dict(self.headers)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[dict[str, Any]]:
        spans = list[dict[str, Any]]()
        for body in self.bodies:
            (resource,) = json.loads(body)["resourceSpans"]
            assert resource["resource"] == {
                "attributes": [{"key": "service.name", "value": {"stringValue": "privateer-server"}}]
            }
            spans += resource["scopeSpans"][0]["spans"]
        return spans


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def about(span: dict[str, Any]) -> dict[str, str]:
    return {attribute["key"]: next(iter(attribute["value"].values())) for attribute in span["attributes"]}


async def test_traces_cover_operators_and_rounds_alone(settings: ServerSettings, collector: Collector) -> None:
    settings = settings.model_copy(update={"traces_url": collector.url})
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        publication = await api.publication()
        # A device, in every way that it asks: all at once, in pieces, by the framework, with a wrong token.
        for path in ("policy", "policy?wait=0", "policy/1", "", "/state", "/pages-that-are-not"):
            await client.get(f"/experiments/test/{path}", headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
        await client.get("/experiments/test/log", headers={"authorization": "Bearer a-wrong-one-of-somebody"})
        await client.post("/experiments/test/shuffler", headers={"privateer-signature": "x"})
        (late_report,) = sealed_reports(publication, 1, 99)
        assert (await client.post("/reports", content=body_of(publication, [late_report]))).status_code == 202
        assert (await report(api, 19, publication)).status_code == 202  # the round closes
        await client.post("/experiments/test/pause", headers=ADMIN)
        await client.post("/batches", content=b"junk")
    spans = collector.spans()
    assert sorted(span["name"] for span in spans) == sorted(
        ["POST /experiments", "learn", "POST /experiments/{name}/pause", "POST /batches"]
    )
    for span in spans:
        assert set(span) == KEYS
        assert set(about(span)) == (set() if span["name"] == "learn" else ABOUT)
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
    assert len({span["traceId"] for span in spans}) == len(spans)  # nobody's request continues anybody's trace
    content = b"".join(collector.bodies).decode() + json.dumps(collector.heads)
    for word in ("test", "abab", "cdcd", late_report.hex()[:16], TOKEN, "admin"):
        assert word not in content, word


def test_device_routes_are_not_traced() -> None:
    """Whatever route a device may use: a span needs an operator's token, or a batch. A planted span is found."""
    traces = Traces("http://127.0.0.1:9")
    routes = ["/reports", "/experiments/{name}/policy", "/experiments/{name}/policy?wait", "other"]
    for route in routes:
        traces.record_answer(AnswerTiming("POST", route, 202, 0.1))
    assert len(traces._spans) == 0
    traces.record_answer(AnswerTiming("POST", "/reports", 202, 0.1, by="alice 01234567"))
    traces.record_answer(AnswerTiming("POST", "/batches", 202, 0.1))
    assert len(traces._spans) == 2


def test_groups_of_reports_are_not_traced() -> None:
    traces = Traces("http://127.0.0.1:9")
    for stage in ("open", "add", "commit"):
        with traces.trace_stage(stage, nullcontext()):
            pass
    assert len(traces._spans) == 0
    with pytest.raises(KeyError), traces.trace_stage("learn", nullcontext()):
        raise KeyError
    (span,) = traces._spans
    assert (span.name, span.has_failed) == ("learn", True)


def test_an_absent_collector_loses_spans_alone(caplog: pytest.LogCaptureFixture) -> None:
    traces = Traces("http://127.0.0.1:9")
    for _ in range(3):
        for _ in range(5000):
            traces.record_answer(AnswerTiming("POST", "/batches", 202, 0.1))
        assert len(traces._spans) == 2048
        traces.send()
        assert len(traces._spans) == 0
    assert [record.name for record in caplog.records] == ["privateer.traces"]


def test_the_exported_document_follows_the_otlp_protocol() -> None:
    span = Span("POST /batches", 2, 1, 2, {"http.response.status_code": 503}, has_failed=True)
    (row,) = encode_spans([span])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert row["attributes"] == [{"key": "http.response.status_code", "value": {"intValue": "503"}}]
    assert (row["startTimeUnixNano"], row["endTimeUnixNano"], row["status"]) == ("1", "2", {"code": 2})


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://x", "http://", "http://x?y", "http://x:0", "http://[x"])
def test_malformed_collector_addresses_are_refused(url: str) -> None:
    with pytest.raises(SpecError, match="OTLP over HTTP") as caught:
        parse_collector_address(url)
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_TRACES_URL", True)


def test_the_collector_address_may_omit_the_path() -> None:
    assert (
        parse_collector_address("http://x:4318/v1/traces")
        == parse_collector_address("http://x:4318/")
        == "http://x:4318"
    )
