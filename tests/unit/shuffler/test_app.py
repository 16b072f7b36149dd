import logging
import re
import sqlite3
import time

import httpx
import pytest

from privateer_core.wire.keys import load_or_create_key, public_hex
from privateer_shuffler.app import create_app
from tests.support.asgi import serving
from tests.support.senders import Signing
from tests.unit.shuffler.fake_server import body_of
from tests.unit.shuffler.helpers import assert_problem, sealed_reports, until


async def test_the_public_key_is_logged_and_written_for_the_server(shuffler, settings):
    key = public_hex(load_or_create_key(settings.data / "shuffler.key", "PRIVATEER_DATA"))
    assert (await shuffler.client.get("/keys")).json() == {"public_key": key}
    assert settings.public_key_file.read_text() == key + "\n"


async def test_the_shuffler_is_ready_with_its_server(shuffler):
    assert (await shuffler.client.get("/healthz")).json() == {"status": "ok"}
    assert (await shuffler.client.get("/readyz")).json() == {"status": "ready"}


async def test_the_shuffler_is_not_ready_without_its_server(shuffler):
    shuffler.server.healthy = False
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")
    assert (await shuffler.client.get("/healthz")).status_code == 200


async def test_the_shuffler_is_not_ready_when_the_server_is_unreachable(settings):
    def refuse(_):
        raise httpx.ConnectError("refused")

    async with serving(create_app(settings, httpx.MockTransport(refuse))) as client:
        assert_problem(await client.get("/readyz"), 503, "unavailable")


async def test_the_shuffler_is_not_ready_without_its_folder(shuffler, settings):
    settings.data.rename(settings.data.with_name("elsewhere"))
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")


async def test_the_shuffler_is_not_ready_after_a_disk_failure(shuffler, monkeypatch):
    def fail(_):
        raise sqlite3.OperationalError("disk I/O error")

    header = shuffler.server.publish()
    monkeypatch.setattr("privateer_shuffler.pool.round_file.RoundStore.commit", fail)
    for _ in range(2):
        assert_problem(await shuffler.post(header, sealed_reports(1)), 503, "unavailable")
    monkeypatch.undo()
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")
    assert (await shuffler.post(header, sealed_reports(1))).status_code == 202
    assert (await shuffler.client.get("/readyz")).status_code == 200


async def test_the_shuffler_is_not_ready_after_a_task_failure(shuffler, monkeypatch, caplog):
    def fail(_):
        raise RuntimeError("secret of a report")

    monkeypatch.setattr("privateer_shuffler.pool.round_file.RoundStore.erase", fail)
    await shuffler.post(shuffler.server.publish(), sealed_reports(5))
    await until(lambda: "a background task ended with RuntimeError" in caplog.text)
    assert_problem(await shuffler.client.get("/readyz"), 503, "unavailable")


@pytest.mark.parametrize("path", ["/", "/nothing", "/experiments/", "/experiments/a/b", "/healthz/", "/metrics/x"])
async def test_other_pages_are_not_found(shuffler, path):
    assert_problem(await shuffler.client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/experiments/spring/reports", {"POST"}),
        ("DELETE", "/experiments/spring", {"GET", "HEAD"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
    ],
)
async def test_other_methods_are_refused(shuffler, method, path, allowed):
    answer = await shuffler.client.request(method, path)
    assert_problem(answer, 405, "method-not-allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_the_log_of_a_defect_does_not_quote_the_request(settings, server, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret of a report")

    monkeypatch.setattr("privateer_core.serving.http.report_endpoint.decode_envelope", fail)
    app = create_app(settings, httpx.ASGITransport(server.app))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with serving(app), httpx.AsyncClient(transport=transport, base_url="http://shuffler") as client:
        answer = await client.post("/experiments/spring/reports", content=b"body")
    assert_problem(answer, 500, "internal")
    assert "secret" not in answer.text


async def test_metrics_have_no_creation_times(shuffler):
    """Prometheus's counters would give the time of their first event, for example of the first refusal."""
    header = shuffler.server.publish()
    await shuffler.post(header, sealed_reports(1))
    await shuffler.post(header, [b"short"])
    text = (await shuffler.client.get("/metrics")).text
    assert "_created" not in text
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(rows.pop("privateer_shuffler_key_timestamp_seconds")) % 86400 == 0
    assert abs(float(rows.pop("privateer_shuffler_time_seconds")) - time.time()) < 60  # the clock, and no event
    assert float(rows.pop("privateer_shuffler_disk_free_bytes")) % (16 << 20) == 0
    assert float(rows.pop("process_start_time_seconds")) < time.time()  # before anybody reported
    assert [row for row in rows.items() if re.search(r"\d{9,}", row[1]) or "e+" in row[1]] == []


async def test_two_shufflers_in_one_process_have_separate_metrics(shuffler, settings, server, tmp_path):
    await shuffler.post(server.publish(), sealed_reports(1))
    other = type(settings)(server_url="http://server", data=tmp_path / "other", public_key_file=tmp_path / "other.pub")
    async with serving(create_app(other, httpx.ASGITransport(server.app))) as client:
        assert "privateer_shuffler_reports_forwarded_total 0.0" in (await client.get("/metrics")).text


async def test_no_origin_of_a_report_is_kept(settings, server, caplog):
    """Neither the files nor the log know who sent a report, while it is held and after."""
    app = create_app(settings, httpx.ASGITransport(server.app))
    header, reports = server.publish(), sealed_reports(5)
    agent = {"user-agent": "device-of-somebody/7", "x-forwarded-for": "198.51.100.23", "cookie": "id=somebody"}
    transport = httpx.ASGITransport(app, client=("203.0.113.77", 54321))
    contents = []
    with caplog.at_level(logging.DEBUG):
        url = "http://shuffler"
        async with serving(app), httpx.AsyncClient(transport=transport, base_url=url, auth=Signing()) as client:
            for start, stop in ((0, 1), (1, 3), (3, 5)):
                body = body_of(header, reports[start:stop])
                await client.post("/experiments/spring/reports", content=body, headers=agent)
                await client.post("/experiments/spring/reports", content=body[:-1], headers=agent)
                contents += [path.read_bytes() for path in settings.data.iterdir()]
            await until(lambda: not list(settings.data.glob("*.db*")))
            contents += [path.read_bytes() for path in settings.data.iterdir()]
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("privateer")]
    content = b"\n".join(contents) + "\n".join(messages).encode()
    assert messages  # the delivery of the batch is logged
    for trace in (b"203.0.113.77", b"54321", b"198.51.100.23", b"somebody", b"device-of"):
        assert trace not in content
    assert bytes([203, 0, 113, 77]) not in content
