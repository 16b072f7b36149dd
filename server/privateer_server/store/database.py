"""Opening SQLite files: ours, whole, of this version, and nobody else's at the same time."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer.errors import SpecError

_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True)
class Kind:
    """What a file of the server is.

    Attributes
    ----------
    application, version
        As SQLite's ``application_id`` and ``user_version``.
    schema
        Statements that make the tables.
    field
        The setting that names the file.
    """

    application: int
    version: int
    schema: str
    field: str


def open_database(path: Path, kind: Kind) -> sqlite3.Connection:
    """Connect with the file's exclusive lock; make the file and its tables if they are missing.

    Raises
    ------
    SpecError
        If the file cannot be opened, is damaged, is of another kind or version, or another server has it.
    """
    db = None
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
        _prepare(db, path, kind)
    except (sqlite3.Error, OSError, SpecError) as error:
        if db:
            db.close()
        raise _refusal(error, path, kind) from None
    return db


def _prepare(db: sqlite3.Connection, path: Path, kind: Kind) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")  # the lock, before anything is read or changed; it stays
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        make_tables(db, kind)
    check_kind(db, path, kind)
    db.execute("COMMIT")
    path.chmod(0o600)  # the write-ahead log takes over the mode
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")


def make_tables(db: sqlite3.Connection, kind: Kind) -> None:
    """Make an empty database one of this kind."""
    for statement in kind.schema.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {kind.application}")
    db.execute(f"PRAGMA user_version = {kind.version}")


def check_kind(db: sqlite3.Connection, path: Path, kind: Kind) -> None:
    """Refuse a database that is damaged, or of another kind or version.

    Raises
    ------
    SpecError
        Naming the setting of the file, and what to do.
    """
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != kind.application:
        raise SpecError(
            f"{path.name} is no database of this version of Privateer's server",
            field=kind.field,
            remedy="name an empty folder, or run the version that made it",
        )
    if version != kind.version:
        raise SpecError(
            f"{path.name} has schema {version}, and this version of Privateer reads schema {kind.version}",
            field=kind.field,
            remedy="run the version that made it, or name an empty folder",
        )
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise _damaged(path, kind)


def is_damage(error: BaseException) -> bool:
    """Whether a database is damaged, so that trying again is of no use."""
    return isinstance(error, sqlite3.Error) and _code(error) in _DAMAGE


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _refusal(error: Exception, path: Path, kind: Kind) -> SpecError:
    if isinstance(error, SpecError):
        return error
    if isinstance(error, OSError):
        detail, remedy = f"{path.name} cannot be used: {error.strerror}", "check the path and its permissions"
        return SpecError(detail, field=kind.field, remedy=remedy)
    if is_damage(error):
        return _damaged(path, kind)
    if isinstance(error, sqlite3.Error) and _code(error) in _LOCKED:
        return SpecError(f"{path.name} is in use", field=kind.field, remedy="stop the other server first")
    return SpecError(f"{path.name} does not open", field=kind.field, remedy="check the disk, or restore a backup")


def _damaged(path: Path, kind: Kind) -> SpecError:
    return SpecError(
        f"{path.name} is damaged, or no database", field=kind.field, remedy="restore a backup into an empty folder"
    )
