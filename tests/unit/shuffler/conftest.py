from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.publication import Round
from privateer_lab.services.processes import free_port
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.pool import Label
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.senders import TRUSTED
from tests.unit.shuffler.fake_server import SIZE, FakeServer
from tests.unit.shuffler.helpers import Shuffler


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def settings(tmp_path: Path) -> ShufflerSettings:
    data = tmp_path / "data"
    sizes = {"min_batch": 2, "body_limit": 1 << 17}
    return ShufflerSettings(
        server_url="http://server", data=data, public_key_file=data / "shuffler.pub", **sizes, sender_keys=TRUSTED
    )


@pytest.fixture
async def shuffler(settings: ShufflerSettings, server: FakeServer) -> AsyncIterator[Shuffler]:
    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        yield Shuffler(client, server)


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[..., RoundStore]:
    """Creates the database of a round."""

    def create(batch: int, folder: Path = tmp_path, size: int = SIZE, **fields: int) -> RoundStore:
        round_ = Round("spring", 1, "shuffle", batch, size, bytes(32), **fields)
        return RoundStore.create(folder, Label(round_, b"d" * 32))

    return create


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the tests' own, and the default ports may be taken on its machine."""
    monkeypatch.setattr("privateer_shuffler.app.prepare_process", lambda *_: None)
    monkeypatch.setenv("PRIVATEER_PORT", str(free_port()))
    monkeypatch.setenv("PRIVATEER_ADMIN_PORT", str(free_port()))
