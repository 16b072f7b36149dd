"""Servers that share their data tell each other that they have published or changed something."""

import time
from threading import Lock
from typing import Any

import psycopg

from privateer_core.serving.store.postgres import connect
from privateer_server.store.rounds import CHANNEL


class Notifications:
    """Says when another server has published or changed something.

    It listens on a connection of its own, which is made again when it breaks.
    """

    def __init__(self, url: str) -> None:
        self._url, self._closed, self._waiting = url, False, Lock()
        self._db: psycopg.Connection[Any] | None = None

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

    def close(self) -> None:
        """End the connection, once the `wait` that is under way has returned."""
        self._closed = True
        with self._waiting:
            self._hang_up()
