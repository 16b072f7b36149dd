"""Databases of the data folder: opened for one process alone, readable by its user alone, of a known version."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from privateer.errors import SpecError

_VERSION: Final = 2
"""All schemas together have this ``PRAGMA user_version``; a new file has 0."""


def open_database(path: Path, pragmas: Sequence[str], tables: Sequence[str]) -> sqlite3.Connection:
    """A connection to a database, which gets its tables if it is new.

    Raises
    ------
    sqlite3.Error, OSError
        If the file is in use, damaged or no database.
    SpecError
        If it is a database of another version.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        is_new = _is_new(connection, path)
        for pragma in ("locking_mode=EXCLUSIVE", "synchronous=FULL", *pragmas):
            connection.execute(f"PRAGMA {pragma}")
        if is_new:
            _make(connection, tables)
    except (sqlite3.Error, SpecError):
        connection.close()
        raise
    return connection


def damaged(path: Path) -> SpecError:
    """What to tell of a database that cannot be used."""
    return SpecError(
        f"{path.name} is in use or damaged, or no database of this shuffler",
        field="PRIVATEER_DATA",
        remedy="restore it, or move it away: what it holds is then lost",
    )


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether a database has no tables yet; told before anything of it is changed."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version != _VERSION and (version or tables):
        raise SpecError(
            f"{path.name} was written by another version of the shuffler",
            field="PRIVATEER_DATA",
            remedy="run that version until its rounds are delivered, or name an empty folder",
        )
    return not version


def _make(connection: sqlite3.Connection, tables: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for table in tables:
        connection.execute(table)
    connection.execute(f"PRAGMA user_version={_VERSION}")
    connection.execute("COMMIT")
