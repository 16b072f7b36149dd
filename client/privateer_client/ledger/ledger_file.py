"""The ledger's SQLite file: opened, brought up to date, and refused if it is damaged or another program's."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from privateer_core.errors import InputError

_APPLICATION: Final = 0x50764C67
"""Marks the file as a ledger: PvLg."""
_VERSION: Final = 7
_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS payments (
    experiment TEXT PRIMARY KEY, version INTEGER NOT NULL, model TEXT NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, local_epsilon REAL NOT NULL, day INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS numbers (
    experiment TEXT PRIMARY KEY, seed INTEGER NOT NULL, people INTEGER NOT NULL, number INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS outbox (experiment TEXT PRIMARY KEY, endpoint TEXT NOT NULL, body BLOB NOT NULL)""",
)
_MIGRATIONS: Final = {
    1: ("ALTER TABLE outbox RENAME COLUMN door TO endpoint",),
    2: (
        "CREATE TABLE choices (experiment TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE publications (experiment TEXT PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL)",
    ),
    3: (
        "ALTER TABLE payments ADD COLUMN reports INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE payments ADD COLUMN made INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE payments ADD COLUMN period INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE payments ADD COLUMN pinned TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE outbox RENAME TO outbox_of_one",
        "CREATE TABLE outbox (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, body BLOB NOT NULL)",
        "INSERT INTO outbox SELECT experiment, endpoint, body FROM outbox_of_one",
        "DROP TABLE outbox_of_one",
        """CREATE TABLE draws (experiment TEXT PRIMARY KEY, times INTEGER NOT NULL, seconds REAL NOT NULL,
        drawn INTEGER NOT NULL, come INTEGER NOT NULL, period INTEGER NOT NULL)""",
    ),
    4: (
        "CREATE TABLE servers (server TEXT PRIMARY KEY, key BLOB NOT NULL, head TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE evidence (server TEXT PRIMARY KEY, body TEXT NOT NULL)",
        "ALTER TABLE publications ADD COLUMN witnessed INTEGER NOT NULL DEFAULT 0",
    ),
    5: (
        "ALTER TABLE outbox ADD COLUMN token BLOB NOT NULL DEFAULT x''",
        """CREATE TABLE tokens (experiment TEXT NOT NULL, endpoint TEXT NOT NULL, input BLOB PRIMARY KEY,
        request BLOB NOT NULL, inverse BLOB NOT NULL, token BLOB NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID""",
    ),
    6: ("CREATE TABLE arms (experiment TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",),
}
"""What makes a marked ledger of each version one of the next."""
_MARKED_FIRST: Final = 2
"""Version that `_SCHEMA` makes."""
_EARLIER: Final = {
    "payments": {"experiment", "version", "model", "epsilon", "delta", "local_epsilon"},
    "numbers": {"experiment", "seed", "people", "number"},
}
"""Tables of ledgers of the time before versions, and the columns that they all have."""
_log = logging.getLogger("privateer.client")
_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class LedgerFile:
    """Transactions on the file.

    path: the file; made if missing, for its user alone.
    today: days since 1970; the day of payments from before the ledger wrote days.
    """

    def __init__(self, path: Path, today: int) -> None:
        self.path = path
        self._begun = threading.local()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError:
            raise _unusable() from None
        with self.transaction() as database:
            if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise _damaged()
            before = _bring_up_to_date(database, today)
        if before:
            _log.info("the ledger is brought from schema %d to %d", before, _VERSION)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that alone writes: durable when the context ends, undone if it ends by an exception.

        Within another one of the same thread it is a part of that, and ends with it.
        """
        outer: sqlite3.Connection | None = getattr(self._begun, "database", None)
        if outer is not None:
            yield outer
            return
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as database:
                database.execute("PRAGMA synchronous=FULL")
                database.execute("PRAGMA secure_delete=ON")
                database.execute("BEGIN IMMEDIATE")
                self._begun.database = database
                yield database
                database.execute("COMMIT")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            raise (_damaged() if code & 0xFF in _DAMAGE else _unusable()) from None
        finally:
            self._begun.database = None


def _bring_up_to_date(database: sqlite3.Connection, today: int) -> int:
    """Make a file a ledger of this version; return which version it was of, 0 if it was of this one or empty."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if (application, version) == (_APPLICATION, _VERSION):
        return 0
    if application == _APPLICATION and version > _VERSION:
        raise InputError("a newer version wrote the ledger", field="ledger", remedy="update the application")
    is_new = not database.execute("SELECT 1 FROM sqlite_master").fetchone()
    if application == 0 and _is_earlier(database):
        _mark(database, today)
        version = _MARKED_FIRST
    elif not (application == _APPLICATION and version in _MIGRATIONS and _is_sound(database)):
        raise _damaged()
    for before in range(version, _VERSION):
        for statement in _MIGRATIONS[before]:
            database.execute(statement)
    database.execute(f"PRAGMA user_version={_VERSION}")
    return 0 if is_new else version


def _mark(database: sqlite3.Connection, today: int) -> None:
    """Make an empty file, or a ledger of the time before versions, a marked ledger."""
    for statement in _SCHEMA:
        database.execute(statement)
    if "day" not in _columns(database, "payments"):  # what was paid some day counts as paid today
        database.execute(f"ALTER TABLE payments ADD COLUMN day INTEGER NOT NULL DEFAULT {today}")
    database.execute(f"PRAGMA application_id={_APPLICATION}")


def _is_sound(database: sqlite3.Connection) -> bool:
    """Tell whether a marked ledger has the columns that all of them have."""
    return all(columns <= _columns(database, table) for table, columns in _EARLIER.items())


def _is_earlier(database: sqlite3.Connection) -> bool:
    """Tell whether a file without a mark is empty, or a ledger of a version that wrote no mark."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return all(_EARLIER.get(table, {""}) <= _columns(database, table) for table in tables)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _unusable() -> InputError:
    return InputError(
        "cannot use the ledger", field="ledger", remedy="name a file that can be written, on a disk with room"
    )


def _damaged() -> InputError:
    return InputError(
        "the file is damaged, or not a ledger",
        field="ledger",
        remedy="put a copy of it back, or name another file: a new one does not know what was reported",
    )
