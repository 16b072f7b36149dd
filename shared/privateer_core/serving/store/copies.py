"""Read-only views of SQLite files, also of files that a service has open for writing.

A service holds the exclusive lock of its database, so that SQLite cannot open it elsewhere; and opening an unlocked
database changes files. So the file is opened without locks. A file with a write-ahead log gets a second name in a
folder of its own, with a copy of the log beside it, from which SQLite recovers the committed transactions. The log is
held meanwhile, so that a service does not change the file. Starts and stops of a service are detected from the states
of file and log.
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
from privateer_core.serving.store.database import DatabaseFacts, SqliteDatabase, read_facts
from privateer_core.serving.store.sqlite import FileKind, bring_up_to_date, check_kind, damage_error
from privateer_core.serving.store.write_ahead_log import hold_log, log_path

_HEADER_BYTES: Final = 32
"""Size of the header of a log, with salts that change when the log is restarted."""
_PREFIX: Final = ".privateer-"
_TRIES: Final = 40
_PAUSE_SECONDS: Final = 0.05
# SQLite locks these bytes of its files (https://sqlite.org/src/file/src/os.h).
_LOCK_OFFSET: Final = 0x40000000
_LOCK_BYTES: Final = 512
_FLOCK_FORMAT: Final = "hhqqi4x"
"""Linux's struct flock where numbers of files have 64 bits."""


class UnstableDatabase(Exception):
    """A database changed in every attempt to read it."""


class FileView(SqliteDatabase):
    """A read-only snapshot of a file."""

    def __init__(self, db: sqlite3.Connection, facts: DatabaseFacts, resources: ExitStack) -> None:
        super().__init__(db)
        self.facts, self._resources = facts, resources

    @override
    def examine(self) -> DatabaseFacts:
        return self.facts

    @override
    def close(self) -> None:
        super().close()
        self._resources.close()


def open_view(path: Path, kind: FileKind) -> FileView | None:
    """Open a read-only view of a service's file, whose log it holds; None if empty; refuse a damaged or missing file.

    A file of an earlier version is copied to memory and migrated there.
    """
    try:
        return _open_stable_view(path, kind)
    except FileNotFoundError:
        detail, remedy = f"{path.name} is missing", f"correct {kind.field}, or {kind.repair}"
    except OSError as error:
        detail, remedy = f"{path.name} cannot be read: {error.strerror}", "run the doctor as the user of the service"
    except sqlite3.Error:
        raise damage_error(path, kind) from None
    raise SpecError(detail, field=kind.field, remedy=remedy)


def _open_stable_view(path: Path, kind: FileKind) -> FileView | None:
    """Open a view whose file did not change meanwhile, with several attempts; None if the file is empty."""
    for file in (path, log_path(path)):
        if file.exists() and not file.is_file():  # to read a pipe would never end
            raise damage_error(path, kind)
    for _ in range(_TRIES):
        with ExitStack() as stack:
            log = stack.enter_context(hold_log(path))
            state = _fingerprint_file(path)
            if not path.stat().st_size:  # SQLite takes no log into an empty file
                return None
            try:
                db, facts = _open_and_check(path, log, kind, stack)
            except (sqlite3.Error, SpecError):
                if _fingerprint_file(path) == state:
                    raise
            else:
                if _fingerprint_file(path) == state:
                    return FileView(db, facts, stack.pop_all())
        time.sleep(_PAUSE_SECONDS)
    raise UnstableDatabase


def _fingerprint_file(path: Path) -> tuple[object, ...]:
    """Return a fingerprint that changes when the file is written or its log is restarted."""
    status, log, header = path.stat(), log_path(path), None
    if log.exists():
        with log.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    return status.st_ino, status.st_mtime_ns, status.st_size, header


def _open_and_check(
    path: Path, log: BinaryIO | None, kind: FileKind, stack: ExitStack
) -> tuple[sqlite3.Connection, DatabaseFacts]:
    """Return a read-only connection to a checked file, or to a migrated copy in memory, and its facts."""
    db = stack.enter_context(closing(_connect_read_only(path, log)))
    check_kind(db, path, kind)
    facts = read_facts(db)
    if not facts.is_whole:
        raise damage_error(path, kind)
    if facts.version < kind.version:
        file, db = db, stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
        file.backup(db)
        bring_up_to_date(db, kind)
    db.execute("PRAGMA query_only=ON")
    return db, facts


def _connect_read_only(path: Path, log: BinaryIO | None) -> sqlite3.Connection:
    """Connect to a file without locks; with a log, to a second name of the file or a copy, beside a copied log."""
    if log is None or not os.fstat(log.fileno()).st_size:
        return _connect(immutable_uri(path))
    folder_status = path.parent.stat()
    try:
        with scratch_folder(path.parent) as folder:
            os.link(path, folder / path.name)
            db = _connect_with_log(folder / path.name, log)
        os.utime(path.parent, ns=(folder_status.st_atime_ns, folder_status.st_mtime_ns))
        return db
    except OSError:  # the folder cannot be written, or its files have one name each
        with scratch_folder(None) as folder:
            shutil.copyfile(path, folder / path.name)
            return _connect_with_log(folder / path.name, log)


def _connect_with_log(file: Path, log: BinaryIO) -> sqlite3.Connection:
    """Connect to a file with a copy of a log; both names may be deleted after that."""
    with open(os.open(log_path(file), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as copy:
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


def immutable_uri(path: Path) -> str:
    """Return the URI by which SQLite reads an unchanging file, without its log and without locks."""
    return f"{path.absolute().as_uri()}?immutable=1"


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """Create a temporary folder for this user alone, by default in the system's temporary directory."""
    with TemporaryDirectory(dir=parent, prefix=_PREFIX) as folder:
        yield Path(folder)


def remove_scratch_folders(parent: Path) -> None:
    """Remove the scratch folders that killed processes have left."""
    for folder in parent.glob(f"{_PREFIX}*/"):
        shutil.rmtree(folder, ignore_errors=True)


def is_open_elsewhere(database_path: Path) -> bool | None:
    """Whether another process has a database open; None if that is unknown. This takes no lock."""
    if sys.platform != "linux" or sys.maxsize <= 1 << 32 or not database_path.is_file():
        return None
    lock_query = struct.pack(_FLOCK_FORMAT, fcntl.F_RDLCK, os.SEEK_SET, _LOCK_OFFSET, _LOCK_BYTES, 0)
    try:
        with database_path.open("rb") as file:
            lock_state = fcntl.fcntl(file, fcntl.F_GETLK, lock_query)
    except OSError:
        return None
    return bool(struct.unpack(_FLOCK_FORMAT, lock_state)[0] != fcntl.F_UNLCK)
