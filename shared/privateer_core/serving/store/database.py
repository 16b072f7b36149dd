"""A service's database, an SQLite file or a PostgreSQL database: one way to read it, and one to change it.

Statements are SQLAlchemy's and the same for both. What differs is here and in the two subclasses: how a transaction
begins, who waits for whom, and which errors there are.
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
"""Integers of 64 bits in both."""
insert = insert_postgres
"""SQLite's compiler takes this construct, too: its ``ON CONFLICT`` is PostgreSQL's."""


@dataclass(frozen=True)
class Schema:
    """The tables of a PostgreSQL database, and how they are brought up to date."""

    name: str  # it tells the databases apart
    version: int  # of the tables as they are now
    tables: tuple[Table, ...]  # what an empty database gets
    # statements, separated by semicolons, that make the next version of the version that they are at
    steps: Mapping[int, str] = field(default_factory=dict)


def oldest(version: int, steps: Mapping[int, str]) -> int:
    """Return the earliest version of tables that steps make those of a version."""
    return min([version, *steps])


def reads(version: int, steps: Mapping[int, str]) -> str:
    """Say which versions of tables a service of this version reads."""
    return f"migrates from {oldest(version, steps)} on" if steps else f"reads {version}"


class Unreachable(OSError):
    """The database does not answer as it should now. What it was asked to do may be done, or not."""


@dataclass(frozen=True)
class DatabaseFacts:
    """Facts that a database states of itself."""

    version: int  # of its tables
    size: int  # in bytes
    # whether it finds no damage: SQLite reads all pages for that, and PostgreSQL counts the wrong checksums that it has
    # met, where it keeps checksums
    is_whole: bool


class Database(ABC):
    """A database that threads share.

    Errors are the driver's own, and `Unreachable` where PostgreSQL does not answer.
    """

    is_shared: bool  # whether other processes change it, too
    identity = ""  # which copy of the database this is, where one may be put in the place of another under a service
    is_read_only = False  # whether it is only looked at, as it is

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._single = engine

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Return a connection for reading, on which every statement stands for itself."""
        with self._connected(self._single) as db:
            yield db

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Return a connection with a transaction: committed and durable when the context is left, undone on an error.

        Who calls ``commit`` or ``rollback`` on it has ended it before.
        """
        with self._connected(self._engine) as db:
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
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.connect() as db:
                yield db
        except DBAPIError as error:
            raise (error.orig or error) from None

    @abstractmethod
    def _begin(self, db: Connection) -> None:
        """Begin a transaction that writes, if the driver does not do it by itself."""

    @abstractmethod
    def lock(self, db: Connection, kind: int, name: str = "") -> None:
        """Keep every other process from going on after the same call, until the transaction ends."""

    @abstractmethod
    def examine(self) -> DatabaseFacts:
        """Return its version, its size, and whether it is whole."""

    @abstractmethod
    def tidy(self) -> None:
        """Erase what is left of earlier states of the data, as far as a service can; a later call may do the rest."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database; nothing here is used again."""


class DriverStatement:
    """A statement that changes rows and that the driver runs by itself: for where Core's time counts, about 25 µs.

    sql: with its values' names after colons, as in ``:name``.
    """

    def __init__(self, sql: str) -> None:
        self._sql = {"sqlite": sql, "postgresql": re.sub(r":(\w+)", r"%(\1)s", sql)}

    def run(self, db: Connection, values: Mapping[str, object]) -> int:
        """Return how many rows it has changed, in a transaction that has begun."""
        driver: Any = db.connection.driver_connection
        return int(driver.execute(self._sql[db.dialect.name], values).rowcount)


def keep_first(db: Connection, column: Column[Value], value: Value) -> Value:
    """Put a value into the only row of a table, unless there is one; return the one that is there then."""
    row: dict[str, Any] = {"id": 1, column.name: value}
    db.execute(insert(column.table).values(row).on_conflict_do_nothing())
    return db.execute(select(column)).scalar_one()


def secret_table(tables: MetaData) -> Table:
    """Declare the table of the key by which a database hashes what it must know again, and not keep."""
    return Table("secret", tables, Column("key", LargeBinary, nullable=False))


def own_secret(database: Database, secret: Table) -> bytes:
    """Return the key in a database's `secret_table`, 32 bytes, which a new database gets."""
    with database.transaction() as db:
        key: bytes | None = db.execute(select(secret.c.key)).scalar()
        if key is None:
            key = secrets.token_bytes(SECRET_BYTES)
            db.execute(insert(secret).values(key=key))
    return key


def creation(tables: Sequence[Table], dialect: Dialect) -> Iterator[str]:
    """Yield the statements that make tables and their indexes, and those of ``table.info`` for a database alone."""
    for table in tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        yield from table.info.get(dialect.name, ())
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
