"""A server that trusts one shuffler, and the shuffler's key."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.keys import publish_key
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.servers import TOKEN, Api
from tests.support.shares import SHARED, Shuffler, serve_split


@pytest.fixture
def key(tmp_path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    publish_key(key, tmp_path / "trusted" / "one.pub")
    return key


@pytest.fixture
async def shuffler(tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shuffler]:
    """A shuffler of an experiment whose rounds ask 20 people."""
    serve_split(monkeypatch)
    settings = ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=(tmp_path / "trusted",))
    async with serving(create_app(settings)) as client:
        api = Api(client)
        response = await api.create(SHARED)
        assert response.status_code == 201, response.text
        yield Shuffler(api, key)
