"""Two servers on PostgreSQL in the place of the one on its own folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from privateer_core.serving.store.leases import Lease, Leases
from privateer_core.serving.store.postgres import Notifications, PostgresDatabase
from tests.faults.points import Faults
from tests.faults.processes import Slot
from tests.faults.schedule import Hands, Lasting
from tests.faults.world import World
from tests.support.postgres import Cluster
from tests.support.replicas import Shared

_LEASE_SECONDS = 0.3
_REPLICAS = 2
_CLOCK = """
CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT to_timestamp(coalesce(nullif(current_setting('simulated.now', true), ''), '0')::double precision)
$$
"""
"""Found before PostgreSQL's own."""


class SharedWorld(World):
    """Servers share their data in two databases."""

    def __init__(self, cluster: Cluster, folder: Path, faults: Faults, clock: Hands) -> None:
        self._shared = Shared.make(cluster, folder)
        self._has_copy = self._is_away = False
        for url in self._databases:
            self._wind(url)
        super().__init__(folder, faults, clock)

    def _make_slots(self) -> list[Slot]:
        folders = [self.folder / f"server{number}" for number in range(_REPLICAS)]
        return [Slot("server", folder, self.faults, self._server, is_shared=True) for folder in folders]

    def stores(self, folder: Path) -> dict[str, Any]:
        del folder
        settings = self._shared.settings()
        names = ("database", "journal_database", "store_key_file", "publication_key")
        return {name: getattr(settings, name) for name in names}

    async def back_up(self) -> None:
        """Dump the database, as docs/operations/scale-servers.md says; never the journal's."""
        if not self._is_away:
            self._shared.cluster.dump(self._shared.database, self.folder / "dump")
            self._has_copy = True

    async def put_back(self, method_number: int) -> None:
        """Put a dump back: with all servers stopped, or under them."""
        if not self._has_copy or self._is_away:
            return
        if method_number:
            for slot in self.servers:
                await slot.stop()
        cluster, database = self._shared.cluster, self._shared.database
        cluster.drop(database)
        cluster.load(self.folder / "dump", cluster.make_again(database))
        self._wind(database)
        self.observer.restores += 1
        if not method_number:  # they go no further on another copy: somebody starts them again
            for slot in self.servers:
                await slot.stop()

    def _wind(self, url: str) -> None:
        """Let the clock of a database be the simulation's."""
        name = url.partition("@/")[2].partition("?")[0]
        self._shared.cluster.execute(_CLOCK, url)
        self._shared.cluster.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")

    async def away(self) -> None:
        self._is_away = True
        for url in self._databases:
            self._shared.cluster.close(url)

    async def back(self) -> None:
        if self._is_away:
            for url in self._databases:
                self._shared.cluster.open(url)
            self._is_away = False

    @property
    def _databases(self) -> tuple[str, str]:
        return self._shared.database, self._shared.journal

    async def stop(self) -> None:
        await super().stop()
        for url in self._databases:
            with suppress(psycopg.Error):
                self._shared.cluster.drop(url)


def shared_world_factory(cluster: Cluster, patched: pytest.MonkeyPatch) -> Callable[[Path, Faults, Hands], World]:
    """Worlds on a cluster, whose clock is theirs; leases are short, and none is renewed while it lasts a moment.

    A bell wakes whoever waits for it soon or not before the next look: the seed decides.
    """
    worlds: list[SharedWorld] = []
    open_connection = PostgresDatabase._open_connection

    @contextmanager
    def connected(database: PostgresDatabase, *options: Any) -> Iterator[Any]:
        with open_connection(database, *options) as db:
            db.exec_driver_sql(f"SELECT set_config('simulated.now', '{worlds[-1].clock.monotonic()}', false)")
            db.commit()
            yield db

    def make(folder: Path, faults: Faults, clock: Hands) -> World:
        worlds.append(SharedWorld(cluster, folder, faults, clock))
        return worlds[-1]

    patched.setattr(PostgresDatabase, "_open_connection", connected)
    patched.setattr(Leases.__init__, "__defaults__", (_LEASE_SECONDS,))
    patched.setattr(Lease, "_keep_renewing", lambda _: None)
    patched.setattr(Notifications, "wait", lambda _, seconds: Lasting(seconds))
    return make
