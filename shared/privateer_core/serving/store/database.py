"""The common interface of a service's database, an SQLite file or a PostgreSQL database.

Statements are SQLAlchemy's and the same for both. The differences are here and in the two subclasses: the start of
transactions, locks and errors.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import BigInteger, Column, Connection, Dialect, Engine, Integer, LargeBinary, MetaData, Table, select
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

SECRET_BYTES: Final = 32
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
