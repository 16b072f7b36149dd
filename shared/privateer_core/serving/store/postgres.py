"""PostgreSQL databases that replicas of a service share: connections for all threads, and migrations.

Only a service with the address of a database imports this module.
"""

import logging
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.serving.logs import log_event
from privateer_core.serving.store.database import (
    Database,
    DatabaseFacts,
    Schema,
    Unreachable,
    create_sql,
    oldest_version,
    versions_text,
)

_MIGRATION_LOCK_ID: Final = 0x50525653
"""The advisory lock of migrations."""
_log = logging.getLogger("privateer.data")
_CONNECT_SECONDS: Final = 5
_SESSION_OPTIONS: Final = {
    "synchronous_commit": "on",  # what is acknowledged is on disk, whatever the database's default is
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "300s",  # a process that stands still keeps no other waiting for good
    "tcp_keepalives_idle": "10",  # nor does one whose machine is gone
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_IDENTITY_SQL: Final = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
    left(pg_walfile_name(pg_current_wal_lsn()), 8),
    (SELECT oid FROM pg_database WHERE datname = current_database()),
    to_regclass('privateer_schema')::oid)
"""
"""The cluster, its timeline, the database and a table in it. Restoring an earlier copy changes one of these."""
_FACTS_SQL: Final = """
SELECT pg_database_size(current_database()), checksum_failures FROM pg_stat_database WHERE datname = current_database()
"""
_SET_VERSION_SQL: Final = text("""
INSERT INTO privateer_schema VALUES (:name, :version) ON CONFLICT (kind) DO UPDATE SET version = excluded.version
""")
_ADVISORY_LOCK_SQL: Final = text("SELECT pg_advisory_xact_lock(:kind, hashtext(:name))")


class PostgresDatabase(Database):
    """A PostgreSQL database, with a connection for each thread that needs one.

    schema: its tables; the database is migrated to this version.
    is_read_only: whether it is only read: it is not migrated, and its version may be 0 for an empty database.
    """

    is_shared = True

    def __init__(self, url: str, schema: Schema, setting: str, *, is_read_only: bool = False) -> None:
        self._url, self._setting, self._is_closed = url, setting, False
        self._schema, self.is_read_only = schema, is_read_only
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # what it says quotes the address, in which a password may stand
            detail, remedy = "is no address of a database", "write what is not a letter or digit in a password as %XX"
            raise SpecError(detail, field=setting, remedy=remedy) from None
        engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=0,  # as many as there are threads
            pool_use_lifo=True,
            hide_parameters=True,
            use_native_hstore=False,
        )
        event.listen(engine, "checkout", _refuse_broken)
        super().__init__(engine)
        self._autocommit_engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._snapshot_engine = engine.execution_options(isolation_level="REPEATABLE READ")
        try:
            with engine.begin() as db:
                if is_read_only:
                    read_version(db, schema, setting)
                else:
                    migrate(db, schema, setting)
            with self._autocommit_engine.connect() as db:
                self.identity = str(db.exec_driver_sql(_IDENTITY_SQL).scalar_one())
        except DBAPIError as error:
            engine.dispose()
            lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
            # The reason comes first. Hints follow it, or the statement.
            detail, remedy = f"the database cannot be used: {lines[0]}", "check that it runs, its address and its owner"
            raise SpecError(detail, field=setting, remedy=remedy) from None
        except SpecError:
            engine.dispose()
            raise

    def _connect(self) -> psycopg.Connection[Any]:
        """Open a connection for the pool, and refuse another copy of the database than before."""
        db = connect(self._url, is_read_only=self.is_read_only)
        try:
            if self.identity and db.execute(_IDENTITY_SQL).fetchone() != (self.identity,):
                raise Unreachable(f"{self._setting} is another copy of the database than before: restart the service")
            db.autocommit = False
        except (psycopg.Error, Unreachable):
            db.close()
            raise
        return db

    @override
    def _begin(self, db: Connection) -> None:
        """Do nothing: the driver begins a transaction with the first statement."""

    @override
    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        with self._open_connection(self._snapshot_engine) as db:
            yield db

    @override
    @contextmanager
    def _open_connection(self, engine: Engine) -> Iterator[Connection]:
        """Return a connection; raise `Unreachable` for lost connections, and no values of refused rows."""
        try:
            with super()._open_connection(engine) as db:
                yield db
        except psycopg.Error as error:
            if not (self.is_read_only or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))):
                # What the database says may quote a row, such as the hash of a token.
                raise type(error)(f"the database refuses a statement ({error.sqlstate})") from None
            raise Unreachable(f"the database does not answer: {type(error).__name__}") from None
        finally:
            if self._is_closed:
                self._engine.pool.dispose()

    @override
    def lock(self, db: Connection, kind: int, name: str = "") -> None:
        db.execute(_ADVISORY_LOCK_SQL, {"kind": kind, "name": name})

    @override
    def examine(self) -> DatabaseFacts:
        """Return version and size, and whether no checksum has failed; refuse unsupported versions."""
        with self.connection() as db:
            version = read_version(db, self._schema, self._setting)
            size, failures = db.exec_driver_sql(_FACTS_SQL).one()
        return DatabaseFacts(version, size, not failures)

    @override
    def erase_old_states(self) -> None:
        """Do nothing, since only the operator of PostgreSQL can erase earlier states."""

    @override
    def close(self) -> None:
        """Close all connections; a connection in use is closed after its use."""
        self._is_closed = True
        self._engine.pool.dispose()


def migrate(db: Connection, schema: Schema, setting: str) -> None:
    """Migrate a database to this version and log it, in the transaction of a connection; one process at a time."""
    db.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK_ID})")
    db.exec_driver_sql("CREATE TABLE IF NOT EXISTS privateer_schema (kind text PRIMARY KEY, version integer NOT NULL)")
    version = read_version(db, schema, setting)
    if not version:
        for statement in create_sql(schema.tables, db.dialect):
            db.exec_driver_sql(statement)
    for number in range(version or schema.version, schema.version):
        for statement in schema.steps[number].split(";"):
            db.exec_driver_sql(statement)
    db.execute(_SET_VERSION_SQL, {"name": schema.name, "version": schema.version})
    if 0 < version < schema.version:
        log_event(_log, "migrated", database=schema.name, from_schema=version, to_schema=schema.version)


def read_version(db: Connection, schema: Schema, setting: str) -> int:
    """Return the version of a database, 0 if it is empty, and refuse unsupported versions."""
    if db.exec_driver_sql("SELECT to_regclass('privateer_schema')").scalar_one() is None:
        return 0
    row = db.exec_driver_sql("SELECT kind, version FROM privateer_schema").fetchone()
    if row is None:
        return 0
    name, version = row
    if name != schema.name:
        detail = f"the database is the {name}'s"
        raise SpecError(detail, field=setting, remedy="name a database for each purpose, and no other there")
    if version > schema.version:
        detail = f"the database was made by a newer Privateer: schema {version}, and this one reads {schema.version}"
        raise SpecError(detail, field=setting, remedy="install the newer version again")
    if version < oldest_version(schema.version, schema.steps):
        readable_versions = versions_text(schema.version, schema.steps)
        detail = f"the database is too old: schema {version}, and this Privateer {readable_versions}"
        remedy = "it is unchanged: run the version that made it until its experiments end, or name an empty database"
        raise SpecError(detail, field=setting, remedy=remedy)
    return int(version)


class _Cursor(psycopg.Cursor[Any]):
    """A cursor that fetches bytes in binary form instead of hexadecimal digits."""

    def __init__(self, connection: psycopg.Connection[Any], **options: Any) -> None:
        super().__init__(connection, **options)
        self.format = Format.BINARY


def connect(url: str, *, is_read_only: bool = False) -> psycopg.Connection[Any]:
    """Open a connection of the driver, on which every statement is a transaction."""
    settings = _SESSION_OPTIONS | ({"default_transaction_read_only": "on"} if is_read_only else {})
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        options=options,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        cursor_factory=_Cursor,
    )


def _refuse_broken(connection: psycopg.Connection[Any], entry: ConnectionPoolEntry, _fairy: object) -> None:
    """Invalidate the pool if an idle connection has input, which means that the database has closed it."""
    is_idle, entry.info["is idle"] = entry.info.get("is idle", False), True
    if is_idle and (connection.closed or _has_input(connection)):
        raise InvalidatePoolError


def _has_input(connection: psycopg.Connection[Any]) -> bool:
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return bool(poller.poll(0))


class Notifications:
    """Notifications of changes by other replicas.

    They arrive on a connection of their own, which is reopened when it breaks.
    """

    def __init__(self, url: str, channel: str) -> None:
        self._url, self._channel, self._closed, self._wait_lock = url, channel, False, Lock()
        self._db: psycopg.Connection[Any] | None = None

    def wait(self, seconds: float) -> None:
        """Wait until another replica notifies of a change, or for ``seconds``."""
        with self._wait_lock:
            if not self._closed:
                self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Wait for a notification; connect first if needed, and hang up on an error, after ``seconds``."""
        try:
            if self._db is None:
                self._db = connect(self._url)
                self._db.execute(f"LISTEN {self._channel}")
                return  # something may have happened before
            for _ in self._db.notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error:
            self._hang_up()
            time.sleep(seconds)

    def _hang_up(self) -> None:
        if self._db:
            self._db.close()
        self._db = None

    def close(self) -> None:
        """Close the connection, after a running `wait` has returned."""
        self._closed = True
        with self._wait_lock:
            self._hang_up()
