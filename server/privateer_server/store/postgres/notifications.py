"""Servers tell each other that they have published or changed something."""

import time
from threading import Lock
from typing import Final

import psycopg
from typing_extensions import override

from privateer_core.serving.store.postgres import Connection, connect, run
from privateer_server.store.protocol import Notifications

CHANNEL: Final = "privateer"


def notify(db: Connection, experiment: str) -> None:
    """Tell all servers of a change to an experiment, once it is committed."""
    run(db, "SELECT pg_notify(%s, %s)", CHANNEL, experiment)


class PostgresNotifications(Notifications):
    """Listens on a connection of its own, which is made again when it breaks."""

    def __init__(self, url: str) -> None:
        self._url, self._closed, self._waiting = url, False, Lock()
        self._db: Connection | None = None

    @override
    def wait(self, seconds: float) -> None:
        """Return when another server tells of a change, or after so many seconds."""
        with self._waiting:
            if not self._closed:
                self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        try:
            if self._db is None:
                self._db = connect(self._url)
                self._db.execute(f"LISTEN {CHANNEL}")
                return  # something may have happened before
            for _ in self._db.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error:
            self._hang_up()
            time.sleep(seconds)

    def _hang_up(self) -> None:
        if self._db:
            self._db.close()
        self._db = None

    @override
    def close(self) -> None:
        """End the connection, once the `wait` that is under way has returned."""
        self._closed = True
        with self._waiting:
            self._hang_up()
