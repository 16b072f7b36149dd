"""A shuffler's claim went to another one while it held a full batch: it must not knock for ever, nor hide it."""

import asyncio
import logging

import pytest

from privateer_core.errors import BatchRefused, Conflict, PrivateerError
from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.unit.shuffler.conftest import server, settings  # noqa: F401
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, sealed_reports, until
from tests.unit.shuffler.test_delivery import FakeAsyncio, answering

REFUSALS = [BatchRefused("another shuffler brings the batches"), Conflict("claimed")]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_batch_is_kept_until_its_version_is_over(
    settings: ShufflerSettings,  # noqa: F811
    server: FakeServer,  # noqa: F811
    refusal: PrivateerError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses, transport, sleep = list[float](), answering(server, refusal), asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0.01)

    monkeypatch.setattr("privateer_shuffler.delivery.asyncio", FakeAsyncio(note))
    with caplog.at_level(logging.WARNING):
        async with serving(create_app(settings, transport)) as client:
            shuffler = Shuffler(client, server)
            await shuffler.post(server.publish(), sealed_reports(5))
            (old,) = settings.data.glob("*.db")
            await until(lambda: transport.attempts >= 4)
            assert await shuffler.metric("reports_held") == 5
            assert set(pauses) == {30}
            assert "DELETE /experiments/spring/shuffler" in caplog.text
            server.publish(version=2)
            await until(lambda: not old.exists())
            attempts = transport.attempts
            await shuffler.reaches(2)
            assert await shuffler.metric("reports_dropped_total") == 5
            assert await shuffler.metric("batches_forwarded_total") == 0
            assert (await shuffler.client.get("/readyz")).status_code == 200
            assert transport.attempts == attempts
    assert "gave up version 1 of spring" in caplog.text
