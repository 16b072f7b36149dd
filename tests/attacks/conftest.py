from pathlib import Path

import pytest

from privateer_server.settings import ServerSettings
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings(data=tmp_path / "data", admin_token=TOKEN, sender_keys=TRUSTED)
