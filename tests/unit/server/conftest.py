from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN, Api


@pytest.fixture
def shuffler_key(tmp_path: Path) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "trusted").mkdir()
    (tmp_path / "trusted" / "one.pub").write_text(key.public_key().public_bytes_raw().hex() + "\n")
    return key


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    shufflers = (tmp_path / "trusted",)
    return ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=shufflers, sender_keys=TRUSTED)


@pytest.fixture
async def api(settings: ServerSettings) -> AsyncIterator[Api]:
    async with serving(create_app(settings)) as client:
        yield Api(client)
