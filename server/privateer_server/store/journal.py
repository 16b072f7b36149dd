"""What was published last, experiment by experiment, on record before the database has it, and outside its backups."""

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from privateer.codec import decode, encode
from privateer.serving.database import Kind, open_database
from privateer_server.store import LogLine, RoundRecord

JOURNAL: Final = Kind(
    application=0x5052564A,
    version=3,
    schema="""
    CREATE TABLE publications (experiment TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE deleted (experiment TEXT PRIMARY KEY, line BLOB NOT NULL) WITHOUT ROWID
    """,
    field="PRIVATEER_JOURNAL",
)


@dataclass(frozen=True)
class Entry:
    """The last publication of an experiment.

    Attributes
    ----------
    closed
        Digest of the round that ended with it; empty at the experiment's first round.
    received, taken
        People who had reported in that round, and whether it was learned from.
    following
        The round that it opened. A curator's noise is in the state here: if the database does not have the round, since
        the process died in between, this is the release that stands, and none is drawn again.
    """

    experiment: str
    closed: bytes
    received: int
    taken: bool
    following: RoundRecord


class Journal:
    """A file beside the database, or on another disk. It never goes back, so it shows when the database did.

    Parameters
    ----------
    path
        The file; or a database that is open already, such as a copy that is only read.

    Raises
    ------
    SpecError
        If the file cannot be opened or another server has it.
    """

    def __init__(self, path: Path | sqlite3.Connection) -> None:
        self._lock = Lock()
        self._db = path if isinstance(path, sqlite3.Connection) else open_database(path, JOURNAL)

    def last(self, experiment: str) -> Entry | None:
        """Return the last publication of an experiment, if there is one."""
        with self._lock:
            row = self._db.execute("SELECT entry FROM publications WHERE experiment = ?", (experiment,)).fetchone()
        return decode(row[0], Entry) if row else None

    def experiments(self) -> list[str]:
        """Return the names of all experiments that were ever published, in alphabetical order."""
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT experiment FROM publications ORDER BY experiment")]

    def write(self, entry: Entry) -> None:
        """Put a publication on record; durable when this returns.

        Raises
        ------
        sqlite3.Error
            If the disk does not take it.
        """
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO publications VALUES (?, ?)", (entry.experiment, encode(entry)))

    def bury(self, experiment: str, line: LogLine) -> None:
        """Put on record that an experiment is deleted, and erase its publication; durable when this returns.

        Raises
        ------
        sqlite3.Error
            If the disk does not take it.
        """
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("INSERT OR IGNORE INTO deleted VALUES (?, ?)", (experiment, encode(line)))
                self._db.execute("DELETE FROM publications WHERE experiment = ?", (experiment,))
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            with suppress(sqlite3.Error):  # earlier states go with the log; if not now, with its next restart
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def buried(self) -> dict[str, LogLine]:
        """Return the deleted experiments, with the lines of their deletion."""
        with self._lock:
            rows = self._db.execute("SELECT experiment, line FROM deleted ORDER BY experiment").fetchall()
        return {name: decode(line, LogLine) for name, line in rows}

    def close(self) -> None:
        """Close the file and give up its lock."""
        with self._lock:
            self._db.close()
