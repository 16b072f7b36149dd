"""The last publication of every experiment that reports were taken for: what a restart must not forget."""

import sqlite3
from pathlib import Path
from typing import Final, NamedTuple

from privateer.errors import SpecError

_FILE: Final = "taken.sqlite"
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS taken (experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL)
"""
_NOTE: Final = """
INSERT INTO taken VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, digest = excluded.digest WHERE excluded.version > version
"""


class Taken(NamedTuple):
    """Version and digest of a publication."""

    version: int
    digest: bytes


class Memory:
    """Public facts alone, durable before a round's first report is taken.

    Without it a server could show a delivered round once more after the shuffler restarts, and fill its batch with one
    late device and people of its own.

    Raises
    ------
    SpecError
        If the file cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._connection = _connect(folder / _FILE)
        except sqlite3.Error as error:
            raise SpecError(
                f"{_FILE} is in use or damaged", field="PRIVATEER_DATA", remedy="stop the other shuffler on this folder"
            ) from error

    def last(self, experiment: str) -> Taken | None:
        """The newest publication that reports were taken for."""
        row = self._connection.execute("SELECT version, digest FROM taken WHERE experiment = ?", (experiment,))
        found = row.fetchone()
        return None if found is None else Taken(*found)

    def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""
        self._connection.execute(_NOTE, (experiment, *taken))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(_TABLE)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
