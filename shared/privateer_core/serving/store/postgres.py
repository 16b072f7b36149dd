"""Connections to one PostgreSQL database, for all threads of a service, and its tables, brought up to date in steps.

Numbered steps in a table of their own do what schemas of a few tables need; a library for migrations would bring an
object-relational mapper into the services' images, which nothing else uses. Only a service that has the address of a
database imports this module.
"""

import logging
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeAlias

import psycopg

from privateer_core.errors import SpecError
from privateer_core.serving.logs import tell

_LOCK: Final = 0x50525653
"""The advisory lock under which one process at a time changes tables."""
_log = logging.getLogger("privateer.data")
_NOTE: Final = """
INSERT INTO privateer_schema VALUES (%s, %s) ON CONFLICT (kind) DO UPDATE SET version = excluded.version
"""
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
_CONNECT_SECONDS: Final = 5
_OPTIONS: Final = {
    "synchronous_commit": "on",  # what is acknowledged is on disk, whatever the database's default is
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "300s",  # a process that stands still keeps no other waiting for good
    "tcp_keepalives_idle": "10",  # nor does one whose machine is gone
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_IDENTITY: Final = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
    left(pg_walfile_name(pg_current_wal_lsn()), 8),
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    'privateer_schema'::regclass::oid)
"""
"""The cluster, its timeline, the database and a table in it. What puts an earlier copy in their place changes one."""


@dataclass(frozen=True)
class Schema:
    """What a database holds.

    Attributes
    ----------
    name
        It tells the databases apart.
    steps
        Each makes the next version, and the first one version 1.
    """

    name: str
    steps: tuple[str, ...]


def migrate(db: psycopg.Connection[tuple[Any, ...]], kind: Schema, field: str) -> None:
    """Bring a database to this version, in one transaction, and tell the log; one process at a time does that.

    Raises
    ------
    SpecError
        If it is another database, or of a newer version; it is not changed then.
    """
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        db.execute("CREATE TABLE IF NOT EXISTS privateer_schema (kind text PRIMARY KEY, version integer NOT NULL)")
        found = db.execute("SELECT kind, version FROM privateer_schema").fetchone()
        name, version = found or (kind.name, 0)
        if name != kind.name:
            detail = f"the database is the {name}'s"
            raise SpecError(detail, field=field, remedy="name a database for each purpose, and no other there")
        if version > len(kind.steps):
            detail = (
                f"the database was made by a newer Privateer: schema {version}, and this one reads {len(kind.steps)}"
            )
            raise SpecError(detail, field=field, remedy="install the newer version again")
        for step in kind.steps[version:]:
            db.execute(step)
        db.execute(_NOTE, (kind.name, len(kind.steps)))
    if 0 < version < len(kind.steps):
        tell(_log, "migrated", database=kind.name, from_schema=version, to_schema=len(kind.steps))


class Unreachable(OSError):
    """The database does not answer as it should now. What it was asked to do may be done, or not."""


class ConnectionPool:
    """Connections that are kept, and one more for every thread that needs it.

    Parameters
    ----------
    url
        Where the database is.
    kind
        What it holds; it is brought to this version.
    field
        The setting that names it.

    Attributes
    ----------
    identity
        Which copy of the database this is.

    Raises
    ------
    SpecError
        If the database cannot be used, or is of another kind or a newer version.
    """

    def __init__(self, url: str, kind: Schema, field: str) -> None:
        self._url, self._field = url, field
        self._idle: list[Connection] = []
        self._lock, self.identity, self._closed = Lock(), "", False
        try:
            with connect(url) as db:
                migrate(db, kind, field)
                self.identity = _identity(db)
        except psycopg.Error as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            detail, remedy = f"the database cannot be used: {said[-1]}", "check that it runs, its address and its owner"
            raise SpecError(detail, field=field, remedy=remedy) from None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Return a connection on which every statement is a transaction, if none is begun.

        Raises
        ------
        Unreachable
            If the database does not answer.
        """
        try:
            db = self._taken()
            try:
                yield db
            except BaseException:
                db.close()
                raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self._forget()
            raise Unreachable(f"the database does not answer: {type(error).__name__}") from error
        with self._lock:
            if not self._closed:
                self._idle.append(db)
                return
        db.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Return a connection with a transaction, which is committed when the context is left, and durable then."""
        with self.connection() as db, db.transaction():
            yield db

    def _taken(self) -> Connection:
        with self._lock:
            while self._idle:
                db = self._idle.pop()
                if _is_quiet(db):
                    return db
                db.close()
        db = connect(self._url)
        if _identity(db) != self.identity:
            db.close()
            raise Unreachable(f"{self._field} is another copy of the database than before: restart the service")
        return db

    def _forget(self) -> None:
        """Close what is idle: other connections will not answer either, or are to another copy."""
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            with suppress(psycopg.Error):
                db.close()

    def close(self) -> None:
        """Close all connections; one that is in use is closed after that."""
        self._closed = True
        self._forget()


def connect(url: str) -> Connection:
    """Return a new connection on which every statement is a transaction."""
    options = " ".join(f"-c {name}={value}" for name, value in _OPTIONS.items())
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        options=options,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
    )


def rows(db: Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return what a statement finds."""
    return db.execute(statement, values, binary=True).fetchall()


def row(db: Connection, statement: str, *values: Any) -> tuple[Any, ...] | None:
    """Return the first of what a statement finds."""
    return db.execute(statement, values, binary=True).fetchone()


def run(db: Connection, statement: str, *values: Any) -> int:
    """Return how many rows a statement has changed."""
    return db.execute(statement, values).rowcount


def _is_quiet(db: Connection) -> bool:
    """Whether nothing has come on an idle connection: what comes there is its end."""
    if db.closed:
        return False
    looking = select.poll()
    looking.register(db.fileno(), select.POLLIN)
    return not looking.poll(0)


def _identity(db: Connection) -> str:
    found = row(db, _IDENTITY)
    assert found is not None, "it selects one row"
    return str(found[0])
