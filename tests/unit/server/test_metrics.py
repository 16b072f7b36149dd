"""Metrics for alerts: latency by route template, stages, queues, experiments, keys and disks."""

import asyncio
import sqlite3
import threading
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from privateer_core.serving.http.answer import OTHER_LABEL, AnswerTiming, TimingMiddleware
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SMALL, Api
from tests.unit.shuffler.helpers import until


def latency(method: str, route: str, status: str) -> str:
    return f'privateer_http_request_duration_seconds_count{{method="{method}",route="{route}",status="{status}"}}'


async def fill(api: Api, people: int) -> None:
    body = await api.publication()
    for report in sealed_reports(body, people):
        assert (await api.client.post("/reports", content=body_of(body, [report]))).status_code == 202


async def test_latency_is_labelled_by_route_template(api: Api) -> None:
    await api.create(SMALL)
    await fill(api, 1)
    for path in ("/experiments/test", "/experiments/somebody", "/experiments/test/policy/1", "/nobody", "/reports/x"):
        await api.client.get(path)
    await api.client.request("PURGE", "/nobody")
    await api.client.get("/experiments/test/policy?wait=1", headers={"if-none-match": '"x"'})
    await api.client.post("/reports", content=b"x")
    await api.client.post("/experiments/test/pause", headers=ADMIN)
    expected = {
        latency("POST", "/experiments", "2xx"): 1,
        latency("POST", "/reports", "2xx"): 1,
        latency("POST", "/reports", "4xx"): 1,
        latency("GET", "/experiments/{name}", "2xx"): 1,
        latency("GET", "/experiments/{name}", "4xx"): 1,
        latency("GET", "/experiments/{name}/policy", "2xx"): 1,
        latency("GET", "/experiments/{name}/policy?wait", "2xx"): 1,
        latency("GET", "/experiments/{name}/policy/{version}", "2xx"): 1,
        latency("POST", "/experiments/{name}/pause", "2xx"): 1,
        latency("GET", OTHER_LABEL, "4xx"): 2,
        latency(OTHER_LABEL, OTHER_LABEL, "4xx"): 1,
    }
    assert {line: await api.metric(line) for line in expected} == expected
    text = (await api.client.get("/metrics")).text
    assert "somebody" not in text
    assert "nobody" not in text
    assert "PURGE" not in text


async def test_a_slow_sender_is_not_a_slow_service(monkeypatch: pytest.MonkeyPatch) -> None:
    timings, now = list[AnswerTiming](), 0.0

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("privateer_core.serving.http.answer.time", SimpleNamespace(perf_counter=lambda: now))

    async def app(_: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        passes(0.02)
        await send({"type": "http.response.start", "status": 202, "headers": []})
        passes(0.2)
        await send({"type": "http.response.body"})

    pieces = iter([True, True, False])

    async def receive() -> dict[str, object]:
        passes(0.1)
        return {"type": "http.request", "more_body": next(pieces)}

    async def send(_: object) -> None: ...

    await TimingMiddleware(app, lambda _: "", timings.append)({"type": "http", "method": "POST"}, receive, send)
    (answered,) = timings
    assert (answered.route, answered.status_class) == (OTHER_LABEL, "2xx")
    assert answered.seconds == pytest.approx(0.02)


async def test_stages_and_releases_are_counted(api: Api) -> None:
    await api.create(SMALL)
    await fill(api, 20)
    for stage in ("open", "add", "commit", "learn"):
        assert await api.metric(f'privateer_stage_seconds_count{{stage="{stage}"}}') >= 1
    assert await api.metric('privateer_stage_seconds_count{stage="learn"}') == 1
    assert await api.metric('privateer_releases_total{experiment="test"}') == 1
    assert await api.metric("privateer_rounds_closed_total") == 1


async def test_an_abandoned_round_counts_no_release(api: Api) -> None:
    await api.create(SMALL)
    await api.client.post("/experiments/test/stop", json={"seconds": 0}, headers=ADMIN)
    async with asyncio.timeout(20):
        while await api.metric("privateer_rounds_closed_total") != 1:
            await asyncio.sleep(0.02)
    assert await api.metric('privateer_releases_total{experiment="test"}') == 0


async def test_experiments_rounds_and_keys_have_gauges(api: Api) -> None:
    before = time.time()
    await api.create(SMALL)
    await api.create({**SMALL, "experiment.name": "other"})
    await api.client.post("/experiments/other/pause", headers=ADMIN)
    opened = await api.metric('privateer_round_opened_timestamp_seconds{experiment="test"}')
    assert before <= opened <= time.time()
    assert await api.metric('privateer_experiments{status="open"}') == 1
    assert await api.metric('privateer_experiments{status="paused"}') == 1
    assert await api.metric('privateer_experiments{status="failed"}') == 0
    await api.client.delete("/experiments/test", headers=ADMIN)
    assert "test" not in [
        line.partition('experiment="')[2].partition('"')[0]
        for line in (await api.client.get("/metrics")).text.splitlines()
        if line.startswith(("privateer_round_opened", "privateer_version"))
    ]


async def test_queues_have_gauges(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create(SMALL)
    body, (report,) = await api.publication(), sealed_reports(await api.publication(), 1)
    assert await api.metric("privateer_requests_waiting") == 0
    commit, event, disk = Store.commit, threading.Event(), threading.Event()

    def slow(store: Store, changes: Any) -> None:
        event.set()
        assert disk.wait(20)
        commit(store, changes)

    monkeypatch.setattr(Store, "commit", slow)
    upload = asyncio.create_task(api.client.post("/reports", content=body_of(body, [report])))
    await until(event.is_set)
    await asyncio.sleep(0.2)
    assert await api.metric("privateer_requests_waiting") == 1
    assert 0.05 < await api.metric("privateer_oldest_request_seconds") < 20
    disk.set()
    assert (await upload).status_code == 202
    assert await api.metric("privateer_requests_waiting") == await api.metric("privateer_oldest_request_seconds") == 0
    assert await api.metric('privateer_stage_seconds_bucket{le="0.1",stage="commit"}') == 0


async def test_a_failure_to_close_a_round_is_counted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from privateer_server.rounds.closing import RoundCloser

    await api.create(SMALL)
    assert await api.metric("privateer_round_close_failures") == 0

    def failing(*_: object) -> None:
        raise sqlite3.OperationalError("full")

    monkeypatch.setattr(RoundCloser, "close_round", failing)
    await fill(api, 20)
    async with asyncio.timeout(20):
        while await api.metric("privateer_round_close_failures") != 1:
            await asyncio.sleep(0.02)
    assert await api.metric('privateer_releases_total{experiment="test"}') == 0


async def test_keys_that_cannot_be_erased_are_counted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from privateer_server.store.round_keys import KeyFolder

    await api.create(SMALL)

    def stuck(*_: object) -> None:
        raise OSError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr(KeyFolder, "erase", stuck)
        await fill(api, 20)
        assert await api.metric("privateer_retained_keys") == 1
    async with asyncio.timeout(20):
        while await api.metric("privateer_retained_keys"):
            await asyncio.sleep(0.05)


async def test_disks_are_those_of_data_and_journal(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        for disk in ("data", "journal"):
            assert await Api(client).metric(f'privateer_disk_free_bytes{{of="{disk}"}}') > 0
        assert await Api(client).metric("privateer_intake_up") == 1


async def test_a_server_without_intake_says_so_on_its_gauge(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app):
        pass
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        assert await Api(client).metric("privateer_intake_up") == 0
