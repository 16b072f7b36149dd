"""What was published last, experiment by experiment, on record before the database has it, and outside its backups."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

from typing_extensions import override

from privateer_core.codec import decode, encode
from privateer_core.serving.store.sqlite import FileKind, open_database
from privateer_server.store.protocol import PublicationJournal
from privateer_server.store.records import JournalEntry, Leaf, LogLine

JOURNAL: Final = FileKind(
    application=0x5052564A,
    version=4,
    schema="""
    CREATE TABLE publications (experiment TEXT PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE deleted (experiment TEXT PRIMARY KEY, line BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE log (id INTEGER PRIMARY KEY, origin TEXT NOT NULL);
    CREATE TABLE leaves (position INTEGER PRIMARY KEY, leaf BLOB NOT NULL)
    """,
    field="PRIVATEER_JOURNAL",
    steps={
        # No head was signed for a journal of version 3.
        3: """
        CREATE TABLE log (id INTEGER PRIMARY KEY, origin TEXT NOT NULL);
        CREATE TABLE leaves (position INTEGER PRIMARY KEY, leaf BLOB NOT NULL)
        """
    },
)


class JournalFile(PublicationJournal):
    """The journal (`privateer_server.store.protocol.PublicationJournal`) of a server that is alone with its data.

    A file beside the database, or on another disk. It never goes back, so it shows when the database did.

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

    @override
    def last(self, experiment: str) -> JournalEntry | None:
        with self._lock:
            return self._last(experiment)

    def _last(self, experiment: str) -> JournalEntry | None:
        row = self._db.execute("SELECT entry FROM publications WHERE experiment = ?", (experiment,)).fetchone()
        return decode(row[0], JournalEntry) if row else None

    @override
    def experiments(self) -> list[str]:
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT experiment FROM publications ORDER BY experiment")]

    @override
    def write(self, entry: JournalEntry, after: JournalEntry | None) -> JournalEntry:
        """Put a publication on record, which is ``after`` the last one; durable when this returns.

        Raises
        ------
        sqlite3.Error
            If the disk does not take it.
        """
        del after  # nobody else writes
        with self._lock:
            self._write(entry)
        return entry

    def _write(self, entry: JournalEntry) -> None:
        self._db.execute("INSERT OR REPLACE INTO publications VALUES (?, ?)", (entry.experiment, encode(entry)))

    @override
    def shut(self, experiment: str, digest: bytes) -> None:
        """Put on record that a round takes no further batch, if it is the last one; durable when this returns.

        Raises
        ------
        sqlite3.Error
            If the disk does not take it.
        """
        with self._lock:
            last = self._last(experiment)
            if last and last.following.digest == digest and not last.shut:
                self._write(replace(last, shut=True))

    @override
    def bury(self, experiment: str, line: LogLine) -> None:
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

    @override
    def buried(self) -> dict[str, LogLine]:
        with self._lock:
            rows = self._db.execute("SELECT experiment, line FROM deleted ORDER BY experiment").fetchall()
        return {name: decode(line, LogLine) for name, line in rows}

    @override
    def signer(self, public_key: bytes) -> bytes:
        """Return the key: no other server signs."""
        return public_key

    @override
    def origin(self) -> str:
        with self._lock:
            row = self._db.execute("SELECT origin FROM log").fetchone()
        return str(row[0]) if row else ""

    @override
    def leaves(self, start: int, most: int = -1) -> list[Leaf]:
        select = "SELECT leaf FROM leaves WHERE position > ? ORDER BY position LIMIT ?"
        with self._lock:
            rows = self._db.execute(select, (start, most)).fetchall()
        return [decode(row[0], Leaf) for row in rows]

    @override
    def extend(self, origin: str, start: int, leaves: Sequence[Leaf]) -> None:
        """Put leaves on record before a head is signed for them, and the name of the log; durable when this returns.

        Raises
        ------
        sqlite3.Error
            If the disk does not take it.
        """
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("INSERT OR IGNORE INTO log VALUES (1, ?)", (origin,))
                rows = [(place, encode(leaf)) for place, leaf in enumerate(leaves, start + 1)]
                self._db.executemany("INSERT INTO leaves VALUES (?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @override
    def close(self) -> None:
        """Close the file and give up its lock."""
        with self._lock:
            self._db.close()
