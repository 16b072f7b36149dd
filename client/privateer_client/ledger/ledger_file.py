"""The ledger's SQLite file: connections, transactions and checks."""

import os
import sqlite3
import threading
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any, Final

from privateer_client.ledger.ledger_schema import damaged_error, prepare_tables
from privateer_core.errors import InputError

_CONNECTIONS_MAX: Final = 16
"""Connections that stay open for many participants; further threads open their own."""
_LOG_PAGES: Final = 256
"""Pages of the write-ahead log after which it is moved into the file."""
_LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for other writers."""
_TRIES_MAX: Final = 100
_RETRY_SECONDS: Final = 0.02
"""Tries, and seconds between them, for changing the journal mode."""
_FULL_DURABILITY: Final = "FULL"
_DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class LedgerFile:
    """The file of a ledger, with its transactions.

    path: the file; created if missing, for its user alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread_state, self._write_lock, self._connections = threading.local(), Lock(), _Connections(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError:
            raise _unusable_error() from None
        with self.transaction() as database:
            if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise damaged_error()
            prepare_tables(database)

    @property
    def is_shared(self) -> bool:
        """Whether the file is used for many participants."""
        return self._connections.max_idle > 0

    def share(self) -> None:
        """Prepare the file for many participants: keep connections open, and let readers and writers not block."""
        for tries in range(_TRIES_MAX):
            try:
                with self.reading() as database:
                    database.execute("PRAGMA journal_mode=WAL")
                break
            except InputError:  # another process is using the file, and SQLite does not wait for it here
                if tries == _TRIES_MAX - 1:
                    raise
                sleep(_RETRY_SECONDS)
        self._connections.max_idle = _CONNECTIONS_MAX

    def transaction(self, durability: str = _FULL_DURABILITY) -> AbstractContextManager[sqlite3.Connection]:
        """Return an exclusive transaction for writing: durable when it ends, undone if it ends by an exception.

        Within another transaction of the same thread it is a part of the other. With ``NORMAL`` durability it may be
        undone by a power failure, if the file is used for many participants.
        """
        return _ConnectionContext(self._connections, self._thread_state, self._write_lock, durability)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a connection for reading by a single statement, also within a transaction of the same thread."""
        return _ConnectionContext(self._connections, self._thread_state, None, "")

    def fetch_row(self, query: str, parameters: tuple[Any, ...]) -> Any:
        """Return the first row of a query, or None; a transaction reads it once until it changes the file."""
        database: sqlite3.Connection | None = getattr(self._thread_state, "database", None)
        if database is None:
            with self.reading() as connection:
                return connection.execute(query, parameters).fetchone()
        rows, key = self._thread_state.rows, (query, parameters, database.total_changes)
        if key not in rows:
            rows[key] = database.execute(query, parameters).fetchone()
        return rows[key]

    def empty_log(self) -> None:
        """Empty the write-ahead log, which has overwritten data, unless it is being read."""
        with self.reading() as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class _ConnectionContext:
    """A context manager that lends a connection to a thread, and converts SQLite errors to `InputError`."""

    __slots__ = ("_connections", "_database", "_durability", "_is_within", "_thread_state", "_write_lock")

    def __init__(
        self, connections: "_Connections", state: threading.local, lock: "Lock | None", durability: str
    ) -> None:
        self._connections, self._thread_state = connections, state
        self._write_lock, self._durability = lock, durability

    def __enter__(self) -> sqlite3.Connection:
        outer: sqlite3.Connection | None = getattr(self._thread_state, "database", None)
        self._is_within = outer is not None
        if outer is not None:
            return outer
        # SQLite's waiting threads poll the lock, which is slower the more threads there are.
        if self._write_lock is not None and not self._write_lock.acquire(timeout=_LOCK_TIMEOUT):
            raise _unusable_error()
        try:
            self._database = self._connections.take()
            if self._write_lock is not None:
                self._begin()
        except sqlite3.Error as error:
            self._end()
            raise _make_input_error(error) from None
        return self._database

    def _begin(self) -> None:
        """Begin a transaction with the durability of this context; close the connection if that fails."""
        try:
            if self._durability != _FULL_DURABILITY:
                self._database.execute(f"PRAGMA synchronous={self._durability}")
            # Without a write-ahead log ``BEGIN IMMEDIATE`` would wait for readers when the transaction ends.
            self._database.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            self._database.close()
            raise
        self._thread_state.database, self._thread_state.rows = self._database, {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._is_within:
            return
        try:
            if isinstance(error, sqlite3.Error):
                raise error
            if self._write_lock is not None:
                self._database.execute("ROLLBACK" if kind else "COMMIT")
                if self._durability != _FULL_DURABILITY:
                    self._database.execute(f"PRAGMA synchronous={_FULL_DURABILITY}")
        except sqlite3.Error as failure:
            self._database.close()
            raise _make_input_error(failure) from None
        finally:
            self._end()
        self._connections.give_back(self._database)

    def _end(self) -> None:
        if self._write_lock is not None:
            self._thread_state.database = None
            self._write_lock.release()


class _Connections:
    """A pool that lends each connection to one thread at a time.

    path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._idle: list[sqlite3.Connection] = []
        self._process, self.max_idle = os.getpid(), 0  # connections that stay open
        self._closing = weakref.finalize(self, _close_connections, self._idle)

    def take(self) -> sqlite3.Connection:
        """Return an idle or new connection, for exclusive use."""
        with self._lock:
            if self._process != os.getpid():
                # SQLite forbids to use, or to close, what another process has opened.
                self._closing.detach()
                self._inherited, self._idle, self._process = self._idle, [], os.getpid()
                self._closing = weakref.finalize(self, _close_connections, self._idle)
            if self._idle:
                return self._idle.pop()
        return self._open()

    def give_back(self, database: sqlite3.Connection) -> None:
        """Return a connection to the pool, or close it."""
        with self._lock:
            if len(self._idle) < self.max_idle:
                self._idle.append(database)
                return
        database.close()

    def _open(self) -> sqlite3.Connection:
        """Open the database with settings that erase deleted rows; close it if they cannot be made."""
        database = sqlite3.connect(self._path, isolation_level=None, timeout=_LOCK_TIMEOUT, check_same_thread=False)
        try:
            database.execute("PRAGMA secure_delete=ON")
            database.execute(f"PRAGMA synchronous={_FULL_DURABILITY}")
            database.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        except sqlite3.Error:
            database.close()
            raise
        return database


def _close_connections(idle: list[sqlite3.Connection]) -> None:
    for database in idle:
        database.close()


def _make_input_error(error: sqlite3.Error) -> InputError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return damaged_error() if code & 0xFF in _DAMAGE_CODES else _unusable_error()


def _unusable_error() -> InputError:
    detail = "cannot use the ledger"
    return InputError(detail, field="ledger", remedy="name a file that can be written, on a disk with room")
