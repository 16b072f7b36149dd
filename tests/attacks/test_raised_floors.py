"""An operator raises the fewest reports that a shuffler releases: a round that it holds already is bound by it."""

from pathlib import Path

import httpx

from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.senders import TRUSTED
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, sealed_reports


async def test_a_raised_floor_holds_for_a_round_that_is_held(tmp_path: Path) -> None:
    server, data = FakeServer(), tmp_path / "data"
    settings = ShufflerSettings(
        server_url="http://server", data=data, public_key_file=data / "shuffler.pub", min_batch=2, sender_keys=TRUSTED
    )
    transport = httpx.ASGITransport(server.app)
    header, reports = server.publish(batch=4), sealed_reports(4)
    async with serving(create_app(settings, transport)) as client:
        assert (await Shuffler(client, server).post(header, reports[:3])).status_code == 202
    async with serving(create_app(settings.model_copy(update={"min_batch": 100}), transport)) as client:
        answer = await Shuffler(client, server).post(header, reports[3:])
        assert answer.status_code == 422
        assert "releases no fewer than PRIVATEER_MIN_BATCH=100" in answer.text
    assert not server.taken
