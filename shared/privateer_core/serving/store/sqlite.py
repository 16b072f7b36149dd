"""SQLite files of the services: each has one kind and version, and one process has it open at a time.

A file of an earlier version becomes one of this version when it is opened: numbered steps, all in one transaction.
`SqliteDatabase` is how a service then reads and writes it.
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
from privateer_core.serving.logs import tell
from privateer_core.serving.store.database import Database, DatabaseFacts, creation, oldest, reads
from privateer_core.serving.store.write_ahead_log import LOG_MAX, empty_log, held_log, log_of

_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC: Final = b"SQLite format 3\0"
# The header of a file has these numbers there (https://sqlite.org/fileformat2.html#the_database_header).
_VERSION_AT: Final = 60
_APPLICATION_AT: Final = 68
_NUMBER: Final = struct.Struct(">I")
_log = logging.getLogger("privateer.data")
SPARE_BYTES: Final = 512 << 20
"""What should always be free on a disk with data: `PrivateerDiskFull` fires below."""


_HOLD_TRIES: Final = 20
_HOLD_PAUSE_SECONDS: Final = 0.1


@dataclasses.dataclass(frozen=True)
class FileKind:
    """What a file holds."""

    # application, version: SQLite's ``application_id`` and ``user_version``
    application: int
    version: int
    schema: str | tuple[Table, ...]  # the tables, or statements that make them, separated by semicolons
    field: str  # the setting that names the file or its folder
    # further settings of the database, such as ``page_size=1024``, made before its tables
    pragmas: tuple[str, ...] = ()
    repair: str = "restore a backup into an empty folder"  # what an operator can do if the file is damaged
    # statements, separated by semicolons, that make the next version of the version that they are at
    steps: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def oldest(self) -> int:
        """The earliest version that becomes one of this version."""
        return oldest(self.version, self.steps)


class SqliteDatabase(Database):
    """A file, or a copy of one in memory, that threads use one after the other: a pool of its only connection.

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
        self._raw, self._written, self._is_closed = connection, True, False
        _, _, name = connection.execute("PRAGMA database_list").fetchone()
        self._path = Path(name) if name else None

    def _only_connection(self) -> sqlite3.Connection:
        if self._is_closed:  # whoever waited while it was closed must not use it at that moment
            raise sqlite3.ProgrammingError("the database is closed")
        return self._raw

    @override
    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with super().transaction() as db:
            try:
                yield db
                db.commit()
            except BaseException:
                # After a COMMIT that fails SQLAlchemy takes the transaction for ended; nobody else may find it open.
                if self._raw.in_transaction:
                    self._raw.rollback()
                raise
            with suppress(OSError, sqlite3.Error):  # what is committed stands; a later commit or `tidy` does it
                if self._path and log_of(self._path).stat().st_size > LOG_MAX:
                    empty_log(self._raw, self._path)

    @contextmanager
    def driver(self) -> Iterator[sqlite3.Connection]:
        """Return the driver's connection, which nobody else uses meanwhile."""
        with self.connection():
            yield self._raw

    @override
    def _begin(self, db: Connection) -> None:
        self._written = True
        self._raw.execute("BEGIN IMMEDIATE")

    @override
    def lock(self, db: Connection, kind: int, name: str = "") -> None:
        """Do nothing: there is no other process."""

    @override
    def examine(self) -> DatabaseFacts:
        with self.driver() as db:
            return facts_of(db)

    @override
    def tidy(self) -> None:
        """Empty the write-ahead log, which keeps earlier states of the data; if the disk is full, a later call does."""
        with suppress(sqlite3.Error, OSError), self.driver() as db:
            if self._written and self._path:
                self._written = not empty_log(db, self._path)

    @contextmanager
    def snapshot_file(self) -> Iterator[Path]:
        """Return the file, which stays as it is now until the context is left, for others to read without locks.

        Nobody waits meanwhile: what is committed is in the write-ahead log, which grows.
        """
        assert self._path, "a database in memory is nobody else's"
        with ExitStack() as stack:
            self._hold_empty_log(self._path, stack)
            before = _state_of(self._path)
            yield self._path
            if _state_of(self._path) != before:
                raise sqlite3.OperationalError("the log grew so large that it was emptied meanwhile")

    def _hold_empty_log(self, path: Path, stack: ExitStack) -> None:
        """Hold the log once all of it is in the file; another reader has two seconds to end."""
        for _ in range(_HOLD_TRIES):
            with self.driver() as db:
                if empty_log(db, path):
                    stack.enter_context(held_log(path))
                    return
            time.sleep(_HOLD_PAUSE_SECONDS)
        raise sqlite3.OperationalError("somebody else reads the database, such as the doctor")

    @override
    def close(self) -> None:
        """Close the file and give up its lock, once nobody uses it; closing it again changes nothing."""
        with suppress(sqlite3.ProgrammingError), self.connection() as db:
            self._is_closed = True
            db.invalidate()


def _state_of(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


def open_database(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Open a file as `connect` does, and explain to the operator why that fails."""
    try:
        check_header(path, kind)
        return connect(path, kind)
    except (sqlite3.Error, OSError) as error:
        raise _refusal(error, path, kind) from None


def connect(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Return a connection that holds the file's exclusive lock.

    A file that is missing or empty gets its tables. One of an earlier version is brought to this one, which the log
    tells.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path, kind)
    except (sqlite3.Error, OSError, SpecError):
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    # SQLite would empty the log by itself while somebody reads the file.
    for pragma in ("locking_mode=EXCLUSIVE", "wal_autocheckpoint=0", *kind.pragmas):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN EXCLUSIVE")  # the lock, before anything is read or changed; it stays
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,) and _number(db, "user_version") == 0:
        make_tables(db, kind)
    check_kind(db, path, kind)
    before = _number(db, "user_version")
    bring_up_to_date(db, kind)
    db.execute("COMMIT")
    if before != kind.version:
        tell(_log, "migrated", file=path.name, from_schema=before, to_schema=kind.version)
    path.chmod(0o600)  # the write-ahead log takes over the mode
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # until then the log of a new file cannot be emptied


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of a database's tables."""
    return _number(db, "user_version")


def facts_of(db: sqlite3.Connection) -> DatabaseFacts:
    """Return version and size of a database, and whether it is whole."""
    size = _number(db, "page_count") * _number(db, "page_size")
    return DatabaseFacts(_number(db, "user_version"), size, _is_whole(db))


def _is_whole(db: sqlite3.Connection) -> bool:
    try:
        is_whole = db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
        return is_whole and db.execute("PRAGMA foreign_key_check").fetchone() is None
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise


def make_tables(db: sqlite3.Connection, kind: FileKind) -> None:
    """Turn an empty database into one of this kind."""
    schema = kind.schema.split(";") if isinstance(kind.schema, str) else creation(kind.schema, sqlite.dialect())
    for statement in schema:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {kind.application}")
    db.execute(f"PRAGMA user_version = {kind.version}")


def bring_up_to_date(db: sqlite3.Connection, kind: FileKind) -> None:
    """Make a database that `check_kind` took one of this version; the caller commits that."""
    for version in range(_number(db, "user_version"), kind.version):
        for statement in kind.steps[version].split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {version + 1}")


def check_kind(db: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Refuse a database that is damaged, of another kind, too old or too new."""
    if _number(db, "application_id") != kind.application:
        raise SpecError(
            f"{path.name} is not a database of this service",
            field=kind.field,
            remedy="name the folder of this service, or an empty one",
        )
    _check_version(_number(db, "user_version"), path, kind)
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise damaged(path, kind)


def _check_version(version: int, path: Path, kind: FileKind) -> None:
    if version > kind.version:
        raise SpecError(
            f"{path.name} was made by a newer Privateer: schema {version}, and this one reads {kind.version}",
            field=kind.field,
            remedy=f"install the newer version again, or {kind.repair}",
        )
    if version < kind.oldest:
        raise SpecError(
            f"{path.name} is too old: schema {version}, and this Privateer {reads(kind.version, kind.steps)}",
            field=kind.field,
            remedy="it is unchanged: run the version that made it until its experiments end, or name an empty folder",
        )


def check_header(path: Path, kind: FileKind) -> None:
    """Refuse a file that is too old or too new before anything opens it: SQLite changes what it opens.

    What else may be wrong with it `check_kind` finds. The header may be behind the write-ahead log, which a migration
    that was just interrupted has left; that version is one from which there are steps.
    """
    with suppress(OSError), path.open("rb") as file:
        header = file.read(_APPLICATION_AT + _NUMBER.size)
        if len(header) < _APPLICATION_AT + _NUMBER.size or not header.startswith(_MAGIC):
            return
        if _NUMBER.unpack_from(header, _APPLICATION_AT) == (kind.application,):
            (version,) = _NUMBER.unpack_from(header, _VERSION_AT)
            _check_version(version, path, kind)


def was_cut_short(path: Path) -> bool:
    """Whether the process that had a file last did not close it; anybody who does deletes the write-ahead log.

    Ask before the file is opened.
    """
    return log_of(path).exists()


def is_damage(error: BaseException) -> bool:
    """Whether an error says that a database is damaged, so that trying again does not help."""
    return isinstance(error, sqlite3.Error) and _code(error) in _DAMAGE


def damaged(path: Path, kind: FileKind) -> SpecError:
    """Return the refusal of a database that cannot be read."""
    return SpecError(f"{path.name} is damaged, or no database", field=kind.field, remedy=kind.repair)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _refusal(error: sqlite3.Error | OSError, path: Path, kind: FileKind) -> SpecError:
    if isinstance(error, OSError):
        detail, remedy = f"{path.name} cannot be used: {error.strerror}", "check the path and its permissions"
        return SpecError(detail, field=kind.field, remedy=remedy)
    if is_damage(error):
        return damaged(path, kind)
    if _code(error) in _LOCKED:
        return SpecError(
            f"{path.name} is in use", field=kind.field, remedy="stop the process that uses it, or name another folder"
        )
    return SpecError(f"{path.name} does not open", field=kind.field, remedy=f"check the disk, or {kind.repair}")


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder and is durable now; it is gone when this returns."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True
