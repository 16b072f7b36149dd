"""The databases of services: the interface, and SQLite files; `postgres` has the other kind.

Statements are SQLAlchemy's and the same for both. The differences are here and in the two subclasses: the start of
transactions, locks and errors.
"""

import re
import secrets
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Dialect,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    QueuePool,
    Table,
    create_engine,
    select,
)
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable
from typing_extensions import override

from privateer_core.serving.store.write_ahead_log import LOG_BYTES_MAX, empty_log, hold_log, log_path

SECRET_BYTES: Final = 32
_DAMAGE_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_HOLD_TRIES: Final = 20
_HOLD_PAUSE_SECONDS: Final = 0.1
Value = TypeVar("Value")
INTEGER: Final = BigInteger().with_variant(Integer(), "sqlite")
"""Integers of 64 bits in both databases."""
insert = insert_postgres
"""SQLite's compiler supports this construct, too: its ``ON CONFLICT`` is PostgreSQL's."""


@dataclass(frozen=True)
class Schema:
    """The tables of a PostgreSQL database, and their migrations."""

    name: str  # identifies the kind of database
    version: int  # the current version of the tables
    tables: tuple[Table, ...]  # the tables of a new database
    # statements, separated by semicolons, that migrate from a version to the next, by version
    steps: Mapping[int, str] = field(default_factory=dict)


def oldest_version(version: int, steps: Mapping[int, str]) -> int:
    """Return the earliest version that the steps can migrate to this version."""
    return min([version, *steps])


def versions_text(version: int, steps: Mapping[int, str]) -> str:
    """Describe the versions of tables that a service of this version can read."""
    return f"migrates from {oldest_version(version, steps)} on" if steps else f"reads {version}"


class Unreachable(OSError):
    """The database does not answer as it should. The last statement may have been executed, or not."""


@dataclass(frozen=True)
class DatabaseFacts:
    """Facts that a database states of itself."""

    version: int  # of its tables
    size: int  # in bytes
    # whether no damage is known: SQLite checks all pages, and PostgreSQL counts wrong checksums, where it has checksums
    is_whole: bool


class Database(ABC):
    """A database that threads share.

    Errors are the driver's own, and `Unreachable` where PostgreSQL does not answer.
    """

    is_shared: bool  # whether other processes change it, too
    identity = ""  # identifies the copy of the database, where a copy may be replaced while a service runs
    is_read_only = False  # whether it is only read, without a migration

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._autocommit_engine = engine

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Return a connection for reading, on which every statement is a transaction of its own."""
        with self._open_connection(self._autocommit_engine) as db:
            yield db

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Return a connection with a transaction: committed and durable when the context is left, undone on an error.

        A call of ``commit`` or ``rollback`` on the connection ends the transaction earlier.
        """
        with self._open_connection(self._engine) as db:
            db.begin()
            self._begin(db)
            yield db
            db.commit()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Return a connection for reading, whose statements all see the same state."""
        with self.connection() as db:
            yield db

    @contextmanager
    def _open_connection(self, engine: Engine) -> Iterator[Connection]:
        """Return a connection from the pool; raise the driver's own errors."""
        try:
            with engine.connect() as db:
                yield db
        except DBAPIError as error:
            raise (error.orig or error) from None

    @abstractmethod
    def _begin(self, db: Connection) -> None:
        """Begin a transaction for writing, if the driver does not begin it by itself."""

    @abstractmethod
    def lock(self, db: Connection, kind: int, name: str = "") -> None:
        """Take an exclusive lock by kind and name, until the transaction ends."""

    @abstractmethod
    def examine(self) -> DatabaseFacts:
        """Return the database's version, size, and whether it is undamaged."""

    @abstractmethod
    def erase_old_states(self) -> None:
        """Erase earlier states of the data, as far as a service can; a later call may do the rest."""

    @abstractmethod
    def close(self) -> None:
        """Close the database, which is not used again."""


class SqliteDatabase(Database):
    """A file, or a copy of a file in memory, that threads use one after the other: a pool of its only connection.

    connection: the connection of `open_database` or `connect`, with ``isolation_level=None``.
    """

    is_shared = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        engine = create_engine(
            "sqlite://",
            creator=self._only_connection,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=threading.TIMEOUT_MAX,
            hide_parameters=True,
        )
        super().__init__(engine)
        self._raw_connection, self._has_writes, self._is_closed = connection, True, False
        _, _, name = connection.execute("PRAGMA database_list").fetchone()
        self._path = Path(name) if name else None
        self._log_path = log_path(self._path) if self._path else None

    def _only_connection(self) -> sqlite3.Connection:
        if self._is_closed:  # it may have been closed while this thread waited
            raise sqlite3.ProgrammingError("the database is closed")
        return self._raw_connection

    @override
    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Return a connection with a transaction; after the commit, a log that has grown large is emptied."""
        with super().transaction() as db:
            try:
                yield db
                db.commit()
            except BaseException:
                # After a COMMIT that fails SQLAlchemy considers the transaction ended; the next user must not find it.
                if self._raw_connection.in_transaction:
                    self._raw_connection.rollback()
                raise
            with suppress(
                OSError, sqlite3.Error
            ):  # what is committed stands; a later commit or `erase_old_states` does it
                if self._path and self._log_path and self._log_path.stat().st_size > LOG_BYTES_MAX:
                    empty_log(self._raw_connection, self._path)

    @contextmanager
    def driver(self) -> Iterator[sqlite3.Connection]:
        """Return the driver's connection, for exclusive use."""
        with self.connection():
            yield self._raw_connection

    @override
    def _begin(self, db: Connection) -> None:
        self._has_writes = True
        self._raw_connection.execute("BEGIN IMMEDIATE")

    @override
    def lock(self, db: Connection, kind: int, name: str = "") -> None:
        """Do nothing, since no other process has the database open."""

    @override
    def examine(self) -> DatabaseFacts:
        with self.driver() as db:
            return read_facts(db)

    @override
    def erase_old_states(self) -> None:
        """Empty the write-ahead log, which keeps earlier states of the data; on a full disk a later call does this."""
        if self._has_writes and self._path:
            with suppress(sqlite3.Error, OSError), self.driver() as db:
                self._has_writes = not empty_log(db, self._path)

    @contextmanager
    def snapshot_file(self) -> Iterator[Path]:
        """Return the file, unchanged until the context is left, for reading without locks; raise if it did change.

        Commits do not wait meanwhile: they are in the write-ahead log, which grows.
        """
        assert self._path, "a database in memory is nobody else's"
        with ExitStack() as stack:
            self._hold_empty_log(self._path, stack)
            old_state = _file_state(self._path)
            yield self._path
            if _file_state(self._path) != old_state:
                raise sqlite3.OperationalError("the log grew so large that it was emptied meanwhile")

    def _hold_empty_log(self, path: Path, stack: ExitStack) -> None:
        """Hold the log once all of it is in the file, and wait two seconds at most for another reader to end."""
        for _ in range(_HOLD_TRIES):
            with self.driver() as db:
                if empty_log(db, path):
                    stack.enter_context(hold_log(path))
                    return
            time.sleep(_HOLD_PAUSE_SECONDS)
        raise sqlite3.OperationalError("somebody else reads the database, such as the doctor")

    @override
    def close(self) -> None:
        """Close the file and release its lock, once it is not in use. Closing it again has no effect."""
        with suppress(sqlite3.ProgrammingError), self.connection() as db:
            self._is_closed = True
            db.invalidate()


def _file_state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def read_pragma(db: sqlite3.Connection, pragma: str) -> int:
    """Return an integer setting of a database, such as ``user_version``, the version of its tables."""
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def read_facts(db: sqlite3.Connection) -> DatabaseFacts:
    """Return version and size of a database, and whether it is undamaged."""
    size = read_pragma(db, "page_count") * read_pragma(db, "page_size")
    return DatabaseFacts(read_pragma(db, "user_version"), size, _is_undamaged(db))


def _is_undamaged(db: sqlite3.Connection) -> bool:
    """Whether SQLite finds no damage and no broken reference in a database."""
    try:
        is_whole = db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
        return is_whole and db.execute("PRAGMA foreign_key_check").fetchone() is None
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise


def is_damage(error: BaseException) -> bool:
    """Whether an error means that a database is damaged, so that retrying does not help."""
    return isinstance(error, sqlite3.Error) and error_code(error) in _DAMAGE_CODES


def error_code(error: sqlite3.Error) -> int:
    """Return the primary code of an SQLite error, or 0."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


class DriverStatement:
    """A statement that changes rows and is run by the driver, which saves the 25 µs of SQLAlchemy Core.

    sql: the statement, with parameters as in ``:name``.
    """

    def __init__(self, sql: str) -> None:
        self._sql = {"sqlite": sql, "postgresql": re.sub(r":(\w+)", r"%(\1)s", sql)}

    def run(self, db: Connection, values: Mapping[str, object]) -> int:
        """Run the statement in an open transaction, and return the number of changed rows."""
        driver: Any = db.connection.driver_connection
        return int(driver.execute(self._sql[db.dialect.name], values).rowcount)


def insert_or_get(db: Connection, column: Column[Value], value: Value) -> Value:
    """Insert a value as the only row of a table, unless there is a row; return the stored value."""
    row: dict[str, Any] = {"id": 1, column.name: value}
    db.execute(insert(column.table).values(row).on_conflict_do_nothing())
    return db.execute(select(column)).scalar_one()


def secret_table(tables: MetaData) -> Table:
    """Declare the table of the key by which a database hashes values that it must recognize but not store."""
    return Table("secret", tables, Column("key", LargeBinary, nullable=False))


def get_or_create_secret(database: Database, secret: Table) -> bytes:
    """Return the key in a database's `secret_table`, 32 bytes, and create it in a new database."""
    with database.transaction() as db:
        key: bytes | None = db.execute(select(secret.c.key)).scalar()
        if key is None:
            key = secrets.token_bytes(SECRET_BYTES)
            db.execute(insert(secret).values(key=key))
    return key


def create_sql(tables: Sequence[Table], dialect: Dialect) -> Iterator[str]:
    """Yield the statements that create tables and indexes, and the dialect's own statements in ``table.info``."""
    for table in tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        yield from table.info.get(dialect.name, ())
        for index in sorted(table.indexes, key=lambda table_index: str(table_index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
