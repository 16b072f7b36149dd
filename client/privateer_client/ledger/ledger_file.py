"""The ledger's SQLite file: opened, written in transactions, and refused if it is damaged or another program's."""

import logging
import os
import sqlite3
import threading
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Final

from privateer_client.ledger.ledger_schema import VERSION, bring_up_to_date, damaged
from privateer_core.errors import InputError

_KEPT: Final = 16
"""Connections that stay open where many people are: more threads at once than that open their own."""
_LOG_PAGES: Final = 256
"""Pages of the file's log of writes, after which they go into the file."""
_PATIENCE: Final = 10.0
"""Seconds to wait for others who write."""
_TRIES: Final = 100
_PAUSE: Final = 0.02
"""Tries, and seconds between them, to change how the file is written."""
_log = logging.getLogger("privateer.client")
_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class LedgerFile:
    """Transactions on the file.

    path: the file; made if missing, for its user alone.
    today: days since 1970; the day of payments from before the ledger wrote days.
    """

    def __init__(self, path: Path, today: int) -> None:
        self.path = path
        self._begun, self._writing, self._connections = threading.local(), Lock(), _Connections(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError:
            raise _unusable() from None
        with self.transaction() as database:
            if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise damaged()
            before = bring_up_to_date(database, today)
        if before:
            _log.info("the ledger is brought from schema %d to %d", before, VERSION)

    @property
    def is_shared(self) -> bool:
        """Whether many people are here."""
        return self._connections.are_kept

    def share(self) -> None:
        """Keep connections open, and have nobody who reads wait for who writes, from now on: many people are here."""
        for tries in range(_TRIES):
            try:
                with self.reading() as database:
                    database.execute("PRAGMA journal_mode=WAL")
                break
            except InputError:  # another process is using the file, and SQLite does not wait for it here
                if tries == _TRIES - 1:
                    raise
                sleep(_PAUSE)
        self._connections.keep()

    def transaction(self, durability: str = "FULL") -> AbstractContextManager[sqlite3.Connection]:
        """Return a transaction that alone writes: durable when it ends, undone if it ends by an exception.

        Within another one of the same thread it is a part of that, and ends with it. With ``NORMAL`` durability it may
        be undone if the power fails, where many people are.
        """
        return _Use(self._connections, self._begun, self._writing, durability)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return what one statement reads by, within a transaction of the same thread or not."""
        return _Use(self._connections, self._begun, None, "")

    def empty_log(self) -> None:
        """Leave nothing of what is overwritten in the log of writes, if nobody reads by it."""
        with self.reading() as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class _Use:
    """A use of a connection, which one thread has at a time; what goes wrong is said in one line."""

    __slots__ = ("_begun", "_connections", "_database", "_durability", "_is_within", "_writing")

    def __init__(
        self, connections: "_Connections", begun: threading.local, writing: "Lock | None", durability: str
    ) -> None:
        self._connections, self._begun, self._writing, self._durability = connections, begun, writing, durability

    def __enter__(self) -> sqlite3.Connection:
        outer: sqlite3.Connection | None = getattr(self._begun, "database", None)
        self._is_within = outer is not None
        if outer is not None:
            return outer
        # SQLite has those who wait look again and again, which takes longer the more threads there are.
        if self._writing is not None and not self._writing.acquire(timeout=_PATIENCE):
            raise _unusable()
        try:
            self._database = self._connections.take()
            if self._writing is not None:
                self._begin()
        except sqlite3.Error as error:
            self._end()
            raise _said(error) from None
        return self._database

    def _begin(self) -> None:
        try:
            self._database.execute(f"PRAGMA synchronous={self._durability}")
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            self._database.close()
            raise
        self._begun.database = self._database

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._is_within:
            return
        try:
            if isinstance(error, sqlite3.Error):
                raise error
            if self._writing is not None:
                self._database.execute("ROLLBACK" if kind else "COMMIT")
        except sqlite3.Error as failure:
            self._database.close()
            raise _said(failure) from None
        finally:
            self._end()
        self._connections.give_back(self._database)

    def _end(self) -> None:
        if self._writing is not None:
            self._begun.database = None
            self._writing.release()


class _Connections:
    """Lends each connection to one thread at a time.

    path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._idle: list[sqlite3.Connection] = []
        self._process, self._most = os.getpid(), 0
        self._closing = weakref.finalize(self, _close, self._idle)

    @property
    def are_kept(self) -> bool:
        """Whether connections stay open."""
        return self._most > 0

    def keep(self) -> None:
        """Keep connections open from now on."""
        self._most = _KEPT

    def take(self) -> sqlite3.Connection:
        """Return one that nobody else has."""
        with self._lock:
            if self._process != os.getpid():
                # SQLite forbids to use, or to close, what another process has opened.
                self._closing.detach()
                self._inherited, self._idle, self._process = self._idle, [], os.getpid()
                self._closing = weakref.finalize(self, _close, self._idle)
            if self._idle:
                return self._idle.pop()
        return self._opened()

    def give_back(self, database: sqlite3.Connection) -> None:
        """Let others have a connection."""
        with self._lock:
            if len(self._idle) < self._most:
                self._idle.append(database)
                return
        database.close()

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)
        try:
            database.execute("PRAGMA secure_delete=ON")
            database.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        except sqlite3.Error:
            database.close()
            raise
        return database


def _close(idle: list[sqlite3.Connection]) -> None:
    for database in idle:
        database.close()


def _said(error: sqlite3.Error) -> InputError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return damaged() if code & 0xFF in _DAMAGE else _unusable()


def _unusable() -> InputError:
    return InputError(
        "cannot use the ledger", field="ledger", remedy="name a file that can be written, on a disk with room"
    )
