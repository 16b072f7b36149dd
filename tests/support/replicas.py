"""Servers in this process that share their data in PostgreSQL."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.keys import load_or_create_key
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN, Api


@dataclass(frozen=True)
class Shared:
    """Two databases and two key files: the first encrypts keys of rounds, the second signs publications."""

    cluster: Cluster
    database: str
    journal: str
    key_file: Path

    @classmethod
    def make(cls, cluster: Cluster, folder: Path) -> "Shared":
        key_file = folder / "store.key"
        key_file.write_bytes(os.urandom(32))
        shared = cls(cluster, cluster.make(), cluster.make(), key_file)
        load_or_create_key(shared.identity, "PRIVATEER_PUBLICATION_KEY")
        return shared

    @property
    def identity(self) -> Path:
        return self.key_file.with_name("identity.key")

    def settings(self, *shufflers: Path, tokens: TokenSettings | None = None) -> ServerSettings:
        return ServerSettings(
            data=Path(),
            admin_token=TOKEN,
            shuffler_keys=shufflers,
            sender_keys=TRUSTED,
            database=self.database,
            journal_database=self.journal,
            store_key_file=self.key_file,
            publication_key=self.identity,
            tokens=tokens or TokenSettings(),
        )

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.cluster.execute(statement, self.database)

    @asynccontextmanager
    async def serve_replicas(
        self, servers: int = 2, *shufflers: Path, tokens: TokenSettings | None = None
    ) -> AsyncIterator[list[Api]]:
        async with AsyncExitStack() as stack:
            apps = [create_app(self.settings(*shufflers, tokens=tokens)) for _ in range(servers)]
            yield [Api(await stack.enter_async_context(serving(app))) for app in apps]
