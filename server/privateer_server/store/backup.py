"""Copies of the database that cannot bring an open round back."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_core.serving.store.sqlite import FileKind, bring_up_to_date, check_kind, make_tables

_MAGIC: Final = b"SQLite format 3\0"
_TABLES: Final = ("experiments", "rounds", "answers", "refusals", "log", "deleted", "leaves", "closers", "spent_tokens")
"""Tables that a backup has."""
_EMPTIED: Final = ("rounds", "total")
"""A round is copied without the sums that it began with: a server that finds no sums gives an open round up."""


def copied(db: sqlite3.Connection, kind: FileKind) -> bytes:
    """Return the bytes of a database with the experiments, rounds and refusals of another.

    Sums and ids of reports are never written to it, so there is nothing in it to erase.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        make_tables(copy, kind)
        for table in _TABLES:
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our own names
            columns = [column[0] for column in rows.description]
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
            for row in rows:
                values = zip(columns, row, strict=True)
                copy.execute(insert, [b"" if (table, name) == _EMPTIED else value for name, value in values])
        return copy.serialize()


def restore(backup: Path, data: Path, kind: FileKind) -> None:
    """Make a data folder of a backup's database, for a server to start on.

    A copy of a server's own file does as well: its sums and ids are left behind. Rounds that are open in it are given
    up when the server starts, and go on under versions that were never published.

    Parameters
    ----------
    backup
        The file.
    data
        A folder that is empty, or not there.

    Raises
    ------
    SpecError
        If the file is no backup, too old or too new, or the folder holds something.
    """
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise SpecError("the folder is not empty", field="DATA", remedy="name one that is empty, or not there yet")
    body = _clean(backup, kind)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    data.chmod(0o700)
    write_durably(data / backup.name, body)


def is_database(body: bytes) -> bool:
    """Whether bytes begin as an SQLite file does."""
    return body.startswith(_MAGIC)


def _clean(backup: Path, kind: FileKind) -> bytes:
    """Return the bytes of a backup, checked and without what no backup has.

    Raises
    ------
    SpecError
        If it is not a backup.
    """
    if not backup.is_file():
        raise SpecError(f"there is no {backup.name}", field="DIR", remedy="name a folder that privateer backup made")
    try:
        with (
            closing(sqlite3.connect(f"{backup.absolute().as_uri()}?immutable=1", uri=True)) as db,
            closing(sqlite3.connect(":memory:", isolation_level=None)) as copy,
        ):
            check_kind(db, backup, kind)
            db.backup(copy)
            bring_up_to_date(copy, kind)
            return copied(copy, kind)
    except sqlite3.Error:
        raise SpecError(f"{backup.name} is damaged, or no backup", field="DIR", remedy="take another") from None


def write_durably(path: Path, body: bytes) -> None:
    """Write a new file for its owner alone: it is whole and on disk when this returns, or not there."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
