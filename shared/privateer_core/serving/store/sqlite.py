"""SQLite files of the services: each has a kind and a version, and a single process has it open at a time.

A file of an earlier version is migrated when it is opened, by numbered steps in one transaction. A service reads and
writes it by `SqliteDatabase`.
"""

import dataclasses
import logging
import os
import sqlite3
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, QueuePool, Table, create_engine
from sqlalchemy.dialects import sqlite
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.serving.logs import log_event
from privateer_core.serving.store.database import Database, DatabaseFacts, create_sql, oldest_version, versions_text
from privateer_core.serving.store.write_ahead_log import LOG_BYTES_MAX, empty_log, hold_log, log_path

_DAMAGE_CODES: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC: Final = b"SQLite format 3\0"
# Offsets of these numbers in the header of a file (https://sqlite.org/fileformat2.html#the_database_header).
_VERSION_OFFSET: Final = 60
_APPLICATION_OFFSET: Final = 68
_HEADER_INTEGER: Final = struct.Struct(">I")
_log = logging.getLogger("privateer.data")
SPARE_BYTES: Final = 512 << 20
"""Bytes that should always be free on a disk with data: the alert `PrivateerDiskFull` fires below."""
_HOLD_TRIES: Final = 20
_HOLD_PAUSE_SECONDS: Final = 0.1


@dataclasses.dataclass(frozen=True)
class FileKind:
    """A kind of SQLite file: its tables, version and migrations."""

    # application, version: SQLite's ``application_id`` and ``user_version``
    application: int
    version: int
    schema: str | tuple[Table, ...]  # the tables, or statements that create them, separated by semicolons
    field: str  # the setting that names the file or its folder
    # further settings of the database, such as ``page_size=1024``, applied before its tables are created
    pragmas: tuple[str, ...] = ()
    repair: str = "restore a backup into an empty folder"  # remedy for a damaged file
    # statements, separated by semicolons, that migrate from a version to the next, by version
    steps: Mapping[int, str] = dataclasses.field(default_factory=dict)


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
                if self._path and log_path(self._path).stat().st_size > LOG_BYTES_MAX:
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
        with suppress(sqlite3.Error, OSError), self.driver() as db:
            if self._has_writes and self._path:
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


def open_database(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Open a file as `connect` does, and raise errors that an operator can act on."""
    try:
        check_header(path, kind)
        return connect(path, kind)
    except (sqlite3.Error, OSError) as error:
        raise _explain_open_error(error, path, kind) from None


def connect(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Open a file with its exclusive lock, and create or migrate its tables.

    A missing or empty file gets its tables. A file of an earlier version is migrated, which is logged.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        _lock_and_migrate(db, path, kind)
    except (sqlite3.Error, OSError, SpecError):
        db.close()
        raise
    return db


def _lock_and_migrate(db: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    # SQLite would empty the log by itself while the file is being read.
    """Lock a database for this process, create or migrate its tables, and set its durability."""
    for pragma in ("locking_mode=EXCLUSIVE", "wal_autocheckpoint=0", *kind.pragmas):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN EXCLUSIVE")  # the lock, before anything is read or changed; it stays
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,) and read_pragma(db, "user_version") == 0:
        make_tables(db, kind)
    check_kind(db, path, kind)
    old_version = read_pragma(db, "user_version")
    bring_up_to_date(db, kind)
    db.execute("COMMIT")
    if old_version != kind.version:
        log_event(_log, "migrated", file=path.name, from_schema=old_version, to_schema=kind.version)
    path.chmod(0o600)  # the write-ahead log takes over the mode
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # until then the log of a new file cannot be emptied


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


def make_tables(db: sqlite3.Connection, kind: FileKind) -> None:
    """Create the tables of this kind in an empty database."""
    schema = kind.schema.split(";") if isinstance(kind.schema, str) else create_sql(kind.schema, sqlite.dialect())
    for statement in schema:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {kind.application}")
    db.execute(f"PRAGMA user_version = {kind.version}")


def bring_up_to_date(db: sqlite3.Connection, kind: FileKind) -> None:
    """Migrate a database that `check_kind` accepted to this version; the caller commits."""
    for version in range(read_pragma(db, "user_version"), kind.version):
        for statement in kind.steps[version].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {version + 1}")


def check_kind(db: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Refuse a database that is damaged, of another kind, too old or too new."""
    if read_pragma(db, "application_id") != kind.application:
        detail = f"{path.name} is not a database of this service"
        raise SpecError(detail, field=kind.field, remedy="name the folder of this service, or an empty one")
    _check_version(read_pragma(db, "user_version"), path, kind)
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise damage_error(path, kind)


def _check_version(version: int, path: Path, kind: FileKind) -> None:
    """Refuse a version of tables that is newer than this one, or too old to be migrated."""
    if version > kind.version:
        detail = f"{path.name} was made by a newer Privateer: schema {version}, and this one reads {kind.version}"
        raise SpecError(detail, field=kind.field, remedy=f"install the newer version again, or {kind.repair}")
    if version < oldest_version(kind.version, kind.steps):
        readable_versions = versions_text(kind.version, kind.steps)
        detail = f"{path.name} is too old: schema {version}, and this Privateer {readable_versions}"
        remedy = "it is unchanged: run the version that made it until its experiments end, or name an empty folder"
        raise SpecError(detail, field=kind.field, remedy=remedy)


def check_header(path: Path, kind: FileKind) -> None:
    """Refuse a file that is too old or too new before SQLite opens it, since SQLite changes opened files.

    All other checks are in `check_kind`. After an interrupted migration the header may be behind the write-ahead log,
    but its version then is one that can be migrated.
    """
    with suppress(OSError), path.open("rb") as file:
        header = file.read(_APPLICATION_OFFSET + _HEADER_INTEGER.size)
        if len(header) < _APPLICATION_OFFSET + _HEADER_INTEGER.size or not header.startswith(_MAGIC):
            return
        if _HEADER_INTEGER.unpack_from(header, _APPLICATION_OFFSET) == (kind.application,):
            (version,) = _HEADER_INTEGER.unpack_from(header, _VERSION_OFFSET)
            _check_version(version, path, kind)


def was_cut_short(path: Path) -> bool:
    """Whether the last process did not close a file, so that its write-ahead log still exists.

    This must be called before the file is opened.
    """
    return log_path(path).exists()


def is_damage(error: BaseException) -> bool:
    """Whether an error means that a database is damaged, so that retrying does not help."""
    return isinstance(error, sqlite3.Error) and _error_code(error) in _DAMAGE_CODES


def damage_error(path: Path, kind: FileKind) -> SpecError:
    """Return the error about a database that cannot be read."""
    return SpecError(f"{path.name} is damaged, or no database", field=kind.field, remedy=kind.repair)


def _error_code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _explain_open_error(error: sqlite3.Error | OSError, path: Path, kind: FileKind) -> SpecError:
    """Return the error for an operator about a file that cannot be opened, by its cause."""
    if isinstance(error, OSError):
        detail, remedy = f"{path.name} cannot be used: {error.strerror}", "check the path and its permissions"
        return SpecError(detail, field=kind.field, remedy=remedy)
    if is_damage(error):
        return damage_error(path, kind)
    if _error_code(error) in _LOCKED_CODES:
        detail = f"{path.name} is in use"
        return SpecError(detail, field=kind.field, remedy="stop the process that uses it, or name another folder")
    return SpecError(f"{path.name} does not open", field=kind.field, remedy=f"check the disk, or {kind.repair}")


def is_writable(folder: Path) -> bool:
    """Whether a file can be written durably in a folder; the file is removed again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True
