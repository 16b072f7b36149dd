"""Shufflers in this process that share one PostgreSQL database."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from privateer_core.wire.keys import load_or_create_key
from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.senders import TRUSTED
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler


@dataclass(frozen=True)
class SharedShufflers:
    """A database, two key files, and the server that batches go to."""

    cluster: Cluster
    settings: ShufflerSettings
    server: FakeServer

    @classmethod
    def make(cls, cluster: Cluster, folder: Path, **changes: Any) -> "SharedShufflers":
        store_key, signing_key = folder / "shuffler-store.key", folder / "signing.key"
        store_key.write_bytes(os.urandom(32))
        load_or_create_key(signing_key, "PRIVATEER_SIGNING_KEY")
        settings = ShufflerSettings(
            server_url="http://server",
            data=folder / "unused",
            public_key_file=None,
            min_batch=2,
            sender_keys=TRUSTED,
            database=cluster.make(),
            store_key_file=store_key,
            signing_key=signing_key,
        )
        return cls(cluster, settings.model_copy(update=changes), FakeServer())

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self.cluster.execute(statement, self.settings.database)

    @asynccontextmanager
    async def serve_replicas(self, shufflers: int = 2) -> AsyncIterator[list[Shuffler]]:
        """So many replicas, each behind a client of its own."""
        async with AsyncExitStack() as stack:
            started = []
            for _ in range(shufflers):
                app = create_app(self.settings, httpx.ASGITransport(self.server.app))
                started.append(Shuffler(await stack.enter_async_context(serving(app)), self.server))
            yield started
