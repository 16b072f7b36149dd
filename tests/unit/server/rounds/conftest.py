"""Fixtures of rounds with deadlines: a clock that is set by hand, and a server on one data folder."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.servers import Api

Serving = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hands:
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    return Hands()


@pytest.fixture
def serve(settings: ServerSettings, clock: Hands) -> Serving:
    """Serve the data folder, once or again."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Api]:
        async with serving(create_app(settings, clock)) as client:
            yield Api(client)

    return run
