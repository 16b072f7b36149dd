"""Write-ahead logs of SQLite databases, which keep earlier states of the data until they are emptied.

A reader without SQLite's locks, in this process or another one, holds the log. Then it is not emptied, and the
database's own file does not change: commits are in the log alone meanwhile.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

LOG_BYTES_MAX: Final = 4 << 20
"""Bytes after which a log is emptied at the next commit."""
_HELD_BYTES_MAX: Final = 1 << 30
"""Bytes after which a log is emptied although it is held, since a suspended reader would fill the disk."""


def log_path(path: Path) -> Path:
    """Return the path of a database's log."""
    return path.with_name(f"{path.name}-wal")


@contextmanager
def hold_log(path: Path) -> Iterator[BinaryIO | None]:
    """Hold the log of a database, if it exists, and return it for reading."""
    try:
        log = log_path(path).open("rb")
    except FileNotFoundError:
        yield None
        return
    with log:
        fcntl.flock(log, fcntl.LOCK_SH)
        yield log


def empty_log(db: sqlite3.Connection, path: Path) -> bool:
    """Move the log of an open database into its file, unless the log is held; return whether the log is empty."""
    # SQLite has the log open for as long as the database. It is created here if SQLite has not created it yet.
    with open(os.open(log_path(path), os.O_RDWR | os.O_CREAT, 0o600), "rb") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if os.fstat(log.fileno()).st_size <= _HELD_BYTES_MAX:
                return False
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
