from pathlib import Path

import pytest

from privateer_server.settings import Settings
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", admin_token=TOKEN, sender_keys=TRUSTED)
