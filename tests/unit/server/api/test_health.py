"""Health, readiness, and failures that belong to no experiment."""

import asyncio
import logging
import sqlite3

import httpx
import pytest

from privateer_server.app import create_app
from privateer_server.intake import intake
from privateer_server.settings import ServerSettings
from privateer_server.store.rounds import RoundWriter
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api, assert_problem


async def test_health_and_readiness(api: Api) -> None:
    assert (await api.client.get("/healthz")).json() == {"status": "ok"}
    assert (await api.client.get("/readyz")).json() == {"status": "ready"}


async def test_a_store_that_does_not_write_is_not_ready(api, monkeypatch, caplog):
    """Whoever asks again and again does not fill the log."""
    with monkeypatch.context() as broken:
        broken.setattr(Store, "write_probe", lambda _: 1 / 0)
        for _ in range(3):
            assert_problem(await api.client.get("/readyz"), 503, "unavailable")
        assert (await api.client.get("/healthz")).status_code == 200
    for _ in range(2):
        assert (await api.client.get("/readyz")).status_code == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "privateer.server"]
    assert [line.partition(":")[0] for line in lines] == ["the data cannot be written", "the data can be written again"]


async def counting(api: Api) -> float:
    text = (await api.client.get("/metrics")).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("privateer_intake_up "))


async def test_the_store_gauge_follows_the_last_commit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    await api.create(SMALL)
    body = await api.publication()
    upload = body_of(body, sealed_reports(body, 1))
    assert await counting(api) == 1
    with monkeypatch.context() as disk:
        disk.setattr(RoundWriter, "apply", full)
        assert_problem(await api.client.post("/reports", content=upload), 503, "unavailable")
        assert await counting(api) == 0
        assert_problem(await api.client.get("/readyz"), 503, "unavailable")  # though a probe finds room
    assert (await api.client.post("/reports", content=upload)).status_code == 202
    assert await counting(api) == 1


@pytest.mark.parametrize("folder", [".", "keys"])
async def test_a_folder_that_cannot_be_written_is_not_ready(api: Api, settings: ServerSettings, folder: str) -> None:
    """The database is open, and takes reports; the next round's key would find no place."""
    place = settings.data / folder
    away = settings.data.with_name("away")
    place.rename(away)
    assert_problem(await api.client.get("/readyz"), 503, "unavailable")
    assert await counting(api) == 0
    away.rename(place)
    assert (await api.client.get("/readyz")).status_code == 200
    assert await counting(api) == 1


@pytest.mark.parametrize("path", ["/", "/nothing", "/experiments/test/nothing", "/reports/"])
async def test_unknown_pages_are_not_found(api: Api, path: str) -> None:
    assert_problem(await api.client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/reports", "POST"),
        ("PUT", "/batches", "POST"),
        ("DELETE", "/experiments", "GET, HEAD, POST"),
        ("POST", "/keys", "GET, HEAD"),
    ],
)
async def test_other_methods_are_refused(api: Api, method: str, path: str, allowed: str) -> None:
    response = await api.client.request(method, path)
    assert_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == allowed


async def test_responses_to_defects_quote_no_exception(api, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    await api.create(SMALL)
    monkeypatch.setattr(Store, "rounds", fail)
    monkeypatch.setattr(intake.Intake, "_enqueue", fail)
    body = await api.publication()
    with caplog.at_level(logging.ERROR):
        for response in (
            await api.client.get("/experiments/test/history"),
            await api.client.post("/reports", content=body_of(body, sealed_reports(body, 1))),
        ):
            assert "secret" not in str(assert_problem(response, 500, "internal"))
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_an_overloaded_server_is_unavailable(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_MAX_QUEUED_REQUESTS", 2)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        body = await api.publication()
        posts = [
            client.post("/reports", content=body_of(body, [sealed_report]))
            for sealed_report in sealed_reports(body, 20)
        ]
        responses = await asyncio.gather(*posts)
        full = [response for response in responses if response.status_code == 503]
        assert full
        assert_problem(full[0], 503, "unavailable")
        assert (await api.facts())["accepted"] == len(responses) - len(full) > 0


async def test_reports_after_the_end_of_an_experiment_are_refused(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as client:
        api = Api(client)
        await api.create(SMALL)
        body = await api.publication()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        response = await client.post("/reports", content=body_of(body, sealed_reports(body, 1)))
        assert_problem(response, 503, "unavailable")
        assert_problem(await client.get("/readyz"), 503, "unavailable")


async def test_a_sender_that_disconnects_in_mid_body_gets_no_response(settings: ServerSettings) -> None:
    app, messages = create_app(settings), []

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        messages.append(message)

    async with serving(app) as client:
        await app({"type": "http", "method": "POST", "path": "/reports", "headers": []}, receive, send)
        assert messages == []
        assert (await client.get("/readyz")).status_code == 200


async def test_logs_carry_nothing_of_reports(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="privateer.server"):
        await api.create(SMALL)
        body = await api.publication()
        await api.client.post("/reports", content=body_of(body, [*sealed_reports(body, 20), bytes(70)]))
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("privateer")]
    assert messages == ["experiment created"]
