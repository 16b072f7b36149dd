"""Write-ahead logs of SQLite databases: they keep earlier states of the data until they are emptied.

Whoever reads a database without SQLite's locks, in this process or another one, holds its log. Then nobody empties it,
and the database's own file stays as it is: what is committed meanwhile is in the log alone.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

LOG_MAX: Final = 4 << 20
"""Bytes after which a log is emptied at the next commit."""
_HELD_MAX: Final = 1 << 30
"""Bytes after which it is emptied although somebody reads, who may stand still and would fill the disk."""


def log_of(path: Path) -> Path:
    """Return where the log of a database is."""
    return path.with_name(f"{path.name}-wal")


@contextmanager
def held_log(path: Path) -> Iterator[BinaryIO | None]:
    """Hold the log of a database, if there is one, and return it for reading."""
    try:
        log = log_of(path).open("rb")
    except FileNotFoundError:
        yield None
        return
    with log:
        fcntl.flock(log, fcntl.LOCK_SH)
        yield log


def empty_log(db: sqlite3.Connection, path: Path) -> bool:
    """Move the log of an open database into its file and empty it, unless somebody holds it; whether it is empty."""
    # It belongs to SQLite, which has it open for as long as the database; whoever comes first makes it.
    with open(os.open(log_of(path), os.O_RDWR | os.O_CREAT, 0o600), "rb") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if os.fstat(log.fileno()).st_size <= _HELD_MAX:
                return False
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
