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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Table
from sqlalchemy.dialects import sqlite

from privateer_core.errors import SpecError
from privateer_core.serving.logs import log_event
from privateer_core.serving.store.database import (
    create_sql,
    error_code,
    is_damage,
    oldest_version,
    read_pragma,
    versions_text,
)
from privateer_core.serving.store.write_ahead_log import log_path

_LOCKED_CODES: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC: Final = b"SQLite format 3\0"
# Offsets of these numbers in the header of a file (https://sqlite.org/fileformat2.html#the_database_header).
_VERSION_OFFSET: Final = 60
_APPLICATION_OFFSET: Final = 68
_HEADER_INTEGER: Final = struct.Struct(">I")
_log = logging.getLogger("privateer.data")
SPARE_BYTES: Final = 512 << 20
"""Bytes that should always be free on a disk with data: the alert `PrivateerDiskFull` fires below."""


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


def open_database(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Open a file as `connect` does, and raise errors that an operator can act on."""
    try:
        check_header_version(path, kind)
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


def check_header_version(path: Path, kind: FileKind) -> None:
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


def damage_error(path: Path, kind: FileKind) -> SpecError:
    """Return the error about a database that cannot be read."""
    return SpecError(f"{path.name} is damaged, or no database", field=kind.field, remedy=kind.repair)


def _explain_open_error(error: sqlite3.Error | OSError, path: Path, kind: FileKind) -> SpecError:
    """Return the error for an operator about a file that cannot be opened, by its cause."""
    if isinstance(error, OSError):
        detail, remedy = f"{path.name} cannot be used: {error.strerror}", "check the path and its permissions"
        return SpecError(detail, field=kind.field, remedy=remedy)
    if is_damage(error):
        return damage_error(path, kind)
    if error_code(error) in _LOCKED_CODES:
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
