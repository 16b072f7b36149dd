"""SQLite files of the services: each has one kind and version, and one process has it open at a time."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError

_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@dataclass(frozen=True)
class Kind:
    """What a file holds.

    Attributes
    ----------
    application, version
        SQLite's ``application_id`` and ``user_version``.
    schema
        Statements that make the tables, separated by semicolons.
    field
        The setting that names the file or its folder.
    pragmas
        Further settings of the database, such as ``page_size=1024``, made before its tables.
    repair
        What an operator can do if the file is damaged.
    """

    application: int
    version: int
    schema: str
    field: str
    pragmas: tuple[str, ...] = ()
    repair: str = "restore a backup into an empty folder"


def open_database(path: Path, kind: Kind) -> sqlite3.Connection:
    """Open a file as `connect` does, and explain to the operator why that fails.

    Raises
    ------
    SpecError
        If the file cannot be opened, is damaged, is of another kind or version, or another process has it.
    """
    try:
        return connect(path, kind)
    except (sqlite3.Error, OSError) as error:
        raise _refusal(error, path, kind) from None


def connect(path: Path, kind: Kind) -> sqlite3.Connection:
    """Return a connection that holds the file's exclusive lock. A file that is missing or empty gets its tables.

    Raises
    ------
    sqlite3.Error, OSError
        If the disk does not take the tables, or the file is damaged or locked.
    SpecError
        If the file is damaged or of another kind or version. It is not changed then.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path, kind)
    except (sqlite3.Error, OSError, SpecError):
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, kind: Kind) -> None:
    for pragma in ("locking_mode=EXCLUSIVE", *kind.pragmas):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN EXCLUSIVE")  # the lock, before anything is read or changed; it stays
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,) and _number(db, "user_version") == 0:
        make_tables(db, kind)
    check_kind(db, path, kind)
    db.execute("COMMIT")
    path.chmod(0o600)  # the write-ahead log takes over the mode
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        db.execute(f"PRAGMA {pragma}")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def make_tables(db: sqlite3.Connection, kind: Kind) -> None:
    """Turn an empty database into one of this kind."""
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
    version = _number(db, "user_version")
    if _number(db, "application_id") != kind.application:
        raise SpecError(
            f"{path.name} is not a database of this service",
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
        raise damaged(path, kind)


def is_damage(error: BaseException) -> bool:
    """Whether an error says that a database is damaged, so that trying again does not help."""
    return isinstance(error, sqlite3.Error) and _code(error) in _DAMAGE


def damaged(path: Path, kind: Kind) -> SpecError:
    """Return the refusal of a database that cannot be read."""
    return SpecError(f"{path.name} is damaged, or no database", field=kind.field, remedy=kind.repair)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _refusal(error: sqlite3.Error | OSError, path: Path, kind: Kind) -> SpecError:
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
