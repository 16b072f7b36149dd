"""Traces say what operators and shufflers do, and nothing of what a device does: a collector here takes them."""

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.http.timing import Answered
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.traces import Span, Traces, collector, document
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
        found = list[dict[str, Any]]()
        for body in self.bodies:
            (resource,) = json.loads(body)["resourceSpans"]
            assert resource["resource"] == {
                "attributes": [{"key": "service.name", "value": {"stringValue": "privateer-server"}}]
            }
            found += resource["scopeSpans"][0]["spans"]
        return found


@pytest.fixture
def taking() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def about(span: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


async def test_operators_and_rounds_are_traced_and_devices_are_not(settings: ServerSettings, taking: Collector) -> None:
    settings = settings.model_copy(update={"traces": taking.url})
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        publication = await api.publication()
        # A device, in every way that it asks: all at once, in pieces, by the framework, with a wrong token.
        for path in ("policy", "policy?wait=0", "policy/1", "", "/state", "/events-that-are-not"):
            await client.get(f"/experiments/test/{path}", headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
        await client.get("/experiments/test/log", headers={"authorization": "Bearer a-wrong-one-of-somebody"})
        await client.post("/experiments/test/shuffler", headers={"privateer-signature": "x"})
        (alone,) = sealed_reports(publication, 1, 99)
        assert (await client.post("/reports", content=body_of(publication, [alone]))).status_code == 202
        assert (await report(api, 19, publication)).status_code == 202  # the round closes
        await client.post("/experiments/test/pause", headers=ADMIN)
        await client.post("/batches", content=b"junk")
    spans = taking.spans()
    assert sorted(one["name"] for one in spans) == sorted(
        ["POST /experiments", "learn", "POST /experiments/{name}/pause", "POST /batches"]
    )
    for one in spans:
        assert set(one) == KEYS
        assert set(about(one)) == (set() if one["name"] == "learn" else ABOUT)
        assert int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"])
        assert (len(one["traceId"]), len(one["spanId"])) == (32, 16)
    assert len({one["traceId"] for one in spans}) == len(spans)  # nobody's request continues anybody's trace
    told = b"".join(taking.bodies).decode() + json.dumps(taking.heads)
    for word in ("test", "abab", "cdcd", alone.hex()[:16], TOKEN, "admin"):
        assert word not in told, word


def test_every_device_route_is_left_out() -> None:
    """Whatever route a device may use: a span needs an operator's token, or a batch. A planted span is found."""
    traces = Traces("http://127.0.0.1:9")
    routes = ["/reports", "/experiments/{name}/policy", "/experiments/{name}/policy?wait", "/events", "other"]
    for route in routes:
        traces.answer(Answered("POST", route, 202, 0.1))
    assert len(traces._spans) == 0
    traces.answer(Answered("POST", "/reports", 202, 0.1, by="alice 01234567"))
    traces.answer(Answered("POST", "/batches", 202, 0.1))
    assert len(traces._spans) == 2


def test_groups_of_reports_are_not_traced() -> None:
    traces = Traces("http://127.0.0.1:9")
    for stage in ("open", "add", "commit"):
        with traces.stage(stage, nullcontext()):
            pass
    assert len(traces._spans) == 0
    with pytest.raises(KeyError), traces.stage("learn", nullcontext()):
        raise KeyError
    (span,) = traces._spans
    assert (span.name, span.failed) == ("learn", True)


def test_a_collector_that_is_away_costs_nothing_but_spans(caplog: pytest.LogCaptureFixture) -> None:
    traces = Traces("http://127.0.0.1:9")
    for _ in range(3):
        for _ in range(5000):
            traces.answer(Answered("POST", "/batches", 202, 0.1))
        assert len(traces._spans) == 2048
        traces.send()
        assert len(traces._spans) == 0
    assert [one.name for one in caplog.records] == ["privateer.traces"]


def test_the_document_is_the_protocols() -> None:
    span = Span("POST /batches", 2, 1, 2, {"http.response.status_code": 503}, failed=True)
    (row,) = document([span])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert row["attributes"] == [{"key": "http.response.status_code", "value": {"intValue": "503"}}]
    assert (row["startTimeUnixNano"], row["endTimeUnixNano"], row["status"]) == ("1", "2", {"code": 2})


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://x", "http://", "http://x?y", "http://x:0", "http://[x"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(SpecError, match="OTLP over HTTP") as caught:
        collector(url)
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_TRACES", True)


def test_the_page_may_be_named_or_not() -> None:
    assert collector("http://x:4318/v1/traces") == collector("http://x:4318/") == "http://x:4318"
