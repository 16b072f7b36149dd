"""Copies of SQLite databases in memory, also of databases that a service holds and writes.

A service holds the exclusive lock of its database, so that SQLite opens it for nobody else; and whoever opens one that
nobody holds changes files. So the bytes are read here: those of the file, and over them the pages of the write-ahead
log up to its last whole transaction. SQLite would recover that state (https://sqlite.org/fileformat2.html#walformat).
The log only grows until all of it is in the file: if it is the same log after the file was read as before, then
whatever was in motion in the file meanwhile is in the log.
"""

import os
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from privateer_core.errors import SpecError
from privateer_core.serving.store.sqlite import (
    FileKind,
    SqliteDatabase,
    bring_up_to_date,
    check_kind,
    damaged,
    facts_of,
)

_LOG_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
"""The last bit says in which order the checksums read their bytes."""
_VERSIONS_AT: Final = slice(18, 20)
"""Bytes of the file's header that ask for a write-ahead log, which a copy in memory does not have."""
_TRIES: Final = 40
_PAUSE_SECONDS: Final = 0.05
_WORD: Final = 0xFFFFFFFF
_PAGES: Final = frozenset(1 << bits for bits in range(9, 17))
"""Sizes of pages that SQLite knows; 1 stands for the largest in a file, and not in a log."""
_UNWRITTEN: Final = 64 << 20
"""Bytes of pages that a transaction may add and free again before anything writes them."""
# SQLite locks these bytes of its files (https://sqlite.org/src/file/src/os.h).
_LOCKED_FROM: Final = 0x40000000
_LOCKED_BYTES: Final = 512
_FLOCK: Final = "hhqqi4x"
"""Linux's struct flock where numbers of files have 64 bits."""


class Unsettled(Exception):
    """A database changed all the time while it was read."""


class FileCopy(NamedTuple):
    """A copy of a service's file, of the present version, and the version of the file."""

    database: SqliteDatabase
    version: int


def checked_copy(path: Path, kind: FileKind) -> FileCopy | None:
    """Return a copy that is brought to this version as a start brings the file; None if the file is empty.

    Raises
    ------
    SpecError
        If the file is missing, cannot be read, is damaged, of another kind, too old or too new.
    Unsettled
        If it does not keep still.
    """
    try:
        db = copy_of(path)
        return _brought_up_to_date(db, path, kind) if db else None
    except FileNotFoundError:
        detail, remedy = f"{path.name} is missing", f"correct {kind.field}, or {kind.repair}"
    except OSError as error:
        detail, remedy = f"{path.name} cannot be read: {error.strerror}", "run the doctor as the user of the service"
    except sqlite3.Error:
        raise damaged(path, kind) from None
    raise SpecError(detail, field=kind.field, remedy=remedy)


def _brought_up_to_date(db: sqlite3.Connection, path: Path, kind: FileKind) -> FileCopy:
    try:
        check_kind(db, path, kind)
        facts = facts_of(db)
        if not facts.is_whole:
            raise damaged(path, kind)
        db.execute("PRAGMA query_only=OFF")
        bring_up_to_date(db, kind)
        db.execute("PRAGMA query_only=ON")
    except (sqlite3.Error, SpecError):
        db.close()
        raise
    return FileCopy(SqliteDatabase(db), facts.version)


def is_held(path: Path) -> bool | None:
    """Whether another process has a database open; None: that cannot be known here. This takes no lock."""
    if sys.platform != "linux" or sys.maxsize <= 1 << 32 or not path.is_file():
        return None
    import fcntl

    asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, _LOCKED_FROM, _LOCKED_BYTES, 0)
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    except OSError:
        return None
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def copy_of(path: Path) -> sqlite3.Connection | None:
    """Return a copy of a database, with all that was committed when it was read; None if the file is empty.

    Raises
    ------
    OSError
        If it cannot be read.
    sqlite3.Error
        If it is no database, or no file: to read a pipe would never end.
    Unsettled
        If it does not keep still.
    """
    for one in (path, _log_path(path)):
        if one.exists() and not one.is_file():
            raise sqlite3.DatabaseError("no file")
    for _ in range(_TRIES):
        state, body, log = _state(path), path.read_bytes(), _log_of(path)
        if _state(path) == state:
            return _opened(_whole(body, log))
        time.sleep(_PAUSE_SECONDS)
    raise Unsettled


def _state(path: Path) -> tuple[object, ...]:
    """Return what stays the same unless the log began anew: its salts. Without a log the file must stay the same."""
    if header := _log_of(path, _LOG_HEADER.size):
        return (header,)
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _log_of(path: Path, size: int = -1) -> bytes:
    try:
        with _log_path(path).open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""


def _whole(body: bytes, log: bytes) -> bytes:
    """Return a database with the pages of its log up to the last transaction that is whole.

    SQLite takes no log into an empty file.
    """
    if not body:
        return b""
    whole, begun = bytearray(body), dict[int, bytes]()
    for number, pages, page in _frames(log):
        begun[number] = page
        if pages * len(page) > len(body) + len(log) + _UNWRITTEN:
            raise sqlite3.DatabaseError("larger than what was written")
        if pages:
            _write(whole, begun, pages * len(page))
            begun = {}
    return bytes(whole)


def _write(whole: bytearray, pages: dict[int, bytes], size: int) -> None:
    """Write pages into a database, which has so many bytes then."""
    whole.extend(bytes(max(0, size - len(whole))))
    for number, page in pages.items():
        whole[(number - 1) * len(page) : number * len(page)] = page
    del whole[size:]


def _frames(log: bytes) -> list[tuple[int, int, bytes]]:
    """Return number, size of the database in pages at a commit, and bytes of every valid page, in order."""
    if len(log) < _LOG_HEADER.size:
        return []
    magic, _, size, _, *salts, first, second = _LOG_HEADER.unpack_from(log)
    order = ">" if magic & 1 else "<"
    sums = _checksum(order, log[: _LOG_HEADER.size - 8], (0, 0))
    if magic & ~1 != _MAGIC or sums != (first, second) or size not in _PAGES:
        return []
    found, at = [], _LOG_HEADER.size
    while at + _FRAME_HEADER.size + size <= len(log):
        number, pages, *of_frame, first, second = _FRAME_HEADER.unpack_from(log, at)
        page = log[at + _FRAME_HEADER.size : at + _FRAME_HEADER.size + size]
        sums = _checksum(order, log[at : at + 8] + page, sums)
        if of_frame != salts or sums != (first, second):
            break
        found.append((number, pages, page))
        at += _FRAME_HEADER.size + size
    return found


def _checksum(order: str, body: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    one, other = sums
    words = struct.unpack(f"{order}{len(body) // 4}I", body)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + other) & _WORD
        other = (other + odd + one) & _WORD
    return one, other


def _opened(body: bytes) -> sqlite3.Connection | None:
    if not body:
        return None
    copy = bytearray(body)
    if len(copy) >= _VERSIONS_AT.stop:
        copy[_VERSIONS_AT] = b"\1\1"
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.deserialize(bytes(copy))
        db.execute("PRAGMA query_only=ON")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db
