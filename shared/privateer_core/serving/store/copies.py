"""Views of SQLite files as they are, also of those that a service holds and writes.

A service holds the exclusive lock of its database, so SQLite opens it for nobody else; and whoever opens one that
nobody holds changes files. So the file is opened without locks. Where it has a write-ahead log, it gets a second name
in a folder of its own, with a copy of the log beside it, from which SQLite recovers what was committed. The log is held
meanwhile, so that a service leaves the file as it is. One that starts, stops or does not wait is seen by the state of
file and log.
"""

import fcntl
import os
import shutil
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import DatabaseFacts
from privateer_core.serving.store.sqlite import (
    FileKind,
    SqliteDatabase,
    bring_up_to_date,
    check_kind,
    damaged,
    facts_of,
)
from privateer_core.serving.store.write_ahead_log import held_log, log_of

_HEADER_BYTES: Final = 32
"""The header of a log has salts, which change when it begins anew."""
_PREFIX: Final = ".privateer-"
_TRIES: Final = 40
_PAUSE_SECONDS: Final = 0.05
# SQLite locks these bytes of its files (https://sqlite.org/src/file/src/os.h).
_LOCKED_FROM: Final = 0x40000000
_LOCKED_BYTES: Final = 512
_FLOCK: Final = "hhqqi4x"
"""Linux's struct flock where numbers of files have 64 bits."""


class Unsettled(Exception):
    """A database changed all the time while it was read."""


class FileView(SqliteDatabase):
    """A file that is only read, as it was when this was made.

    facts: what the file says of itself.
    """

    def __init__(self, db: sqlite3.Connection, facts: DatabaseFacts, held: ExitStack) -> None:
        super().__init__(db)
        self.facts, self._held = facts, held

    @override
    def examine(self) -> DatabaseFacts:
        return self.facts

    @override
    def close(self) -> None:
        super().close()
        self._held.close()


def checked_view(path: Path, kind: FileKind) -> FileView | None:
    """Return a view of a service's file, which holds the file's log until it is closed; None if the file is empty.

    A file of an earlier version is copied to memory, and brought to this version there as a start brings the file.
    """
    try:
        return _settled_view(path, kind)
    except FileNotFoundError:
        detail, remedy = f"{path.name} is missing", f"correct {kind.field}, or {kind.repair}"
    except OSError as error:
        detail, remedy = f"{path.name} cannot be read: {error.strerror}", "run the doctor as the user of the service"
    except sqlite3.Error:
        raise damaged(path, kind) from None
    raise SpecError(detail, field=kind.field, remedy=remedy)


def _settled_view(path: Path, kind: FileKind) -> FileView | None:
    for file in (path, log_of(path)):
        if file.exists() and not file.is_file():  # to read a pipe would never end
            raise damaged(path, kind)
    for _ in range(_TRIES):
        with ExitStack() as stack:
            log = stack.enter_context(held_log(path))
            state = _state(path)
            if not path.stat().st_size:  # SQLite takes no log into an empty file
                return None
            try:
                db, facts = _checked(path, log, kind, stack)
            except (sqlite3.Error, SpecError):
                if _state(path) == state:
                    raise
            else:
                if _state(path) == state:
                    return FileView(db, facts, stack.pop_all())
        time.sleep(_PAUSE_SECONDS)
    raise Unsettled


def _state(path: Path) -> tuple[object, ...]:
    """Return what stays the same unless something else was written to the file, or its log began anew."""
    facts, log, header = path.stat(), log_of(path), None
    if log.exists():
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    return facts.st_ino, facts.st_mtime_ns, facts.st_size, header


def _checked(
    path: Path, log: BinaryIO | None, kind: FileKind, stack: ExitStack
) -> tuple[sqlite3.Connection, DatabaseFacts]:
    db = stack.enter_context(closing(_open(path, log)))
    check_kind(db, path, kind)
    facts = facts_of(db)
    if not facts.is_whole:
        raise damaged(path, kind)
    if facts.version < kind.version:
        file, db = db, stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
        file.backup(db)
        bring_up_to_date(db, kind)
    db.execute("PRAGMA query_only=ON")
    return db, facts


def _open(path: Path, log: BinaryIO | None) -> sqlite3.Connection:
    if log is None or not os.fstat(log.fileno()).st_size:
        return _connect(immutable(path))
    before = path.parent.stat()
    try:
        with scratch_folder(path.parent) as folder:
            os.link(path, folder / path.name)
            db = _with_log(folder / path.name, log)
        os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
        return db
    except OSError:  # the folder cannot be written, or its files have one name each
        with scratch_folder(None) as folder:
            shutil.copyfile(path, folder / path.name)
            return _with_log(folder / path.name, log)


def _with_log(file: Path, log: BinaryIO) -> sqlite3.Connection:
    """Return a connection to a file that is read with a copy of a log; both names may go then."""
    with open(os.open(log_of(file), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as copy:
        shutil.copyfileobj(log, copy)
    db = _connect(f"{file.absolute().as_uri()}?mode=ro&vfs=unix-none")
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # else SQLite shares an index of the log in a file of its own
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def immutable(path: Path) -> str:
    """Return the address by which SQLite reads a file that nobody changes, without its log and without locks."""
    return f"{path.absolute().as_uri()}?immutable=1"


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder for this user alone, which is gone afterwards; by default where the system has such folders."""
    with TemporaryDirectory(dir=parent, prefix=_PREFIX) as folder:
        yield Path(folder)


def remove_scratch_folders(parent: Path) -> None:
    """Remove what processes have left that were killed."""
    for folder in parent.glob(f"{_PREFIX}*/"):
        shutil.rmtree(folder, ignore_errors=True)


def is_held(path: Path) -> bool | None:
    """Whether another process has a database open; None: that cannot be known here. This takes no lock."""
    if sys.platform != "linux" or sys.maxsize <= 1 << 32 or not path.is_file():
        return None
    asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, _LOCKED_FROM, _LOCKED_BYTES, 0)
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    except OSError:
        return None
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
