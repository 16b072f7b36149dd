"""Copies of the database that cannot bring an open round back."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from privateer_core.errors import SpecError, Unavailable
from privateer_core.serving.store.copies import immutable_uri, scratch_folder
from privateer_core.serving.store.database import read_pragma
from privateer_core.serving.store.sqlite import SPARE_BYTES, FileKind, bring_up_to_date, check_kind, make_tables

MEDIA_TYPE: Final = "application/vnd.sqlite3"
_ROUND_TABLES: Final = ("rounds", "answers", "refusals", "shufflers")
_TABLES: Final = ("experiments", *_ROUND_TABLES, "log", "deleted", "leaves", "spent_tokens")
"""Tables that a backup has."""
_EXCLUDED_COLUMN: Final = ("rounds", "total")
"""A round is copied without the sums that it began with: a server that finds no sums gives an open round up."""
_MIGRATED_COPY_URI: Final = "file:privateer-restored?mode=memory&cache=shared"


def open_copy(path: Path, kind: FileKind) -> BinaryIO:
    """Copy a database that no process changes meanwhile to an unnamed file on the same disk, and return the file."""
    required_bytes = path.stat().st_size + SPARE_BYTES
    if shutil.disk_usage(path.parent).free < required_bytes:
        remedy = f"have {-(-required_bytes >> 20):,} MiB free"
        raise Unavailable("the disk with the data has no room for the backup", field="PRIVATEER_DATA", remedy=remedy)
    with scratch_folder(path.parent) as folder:
        copy = folder / path.name
        _write_copy(immutable_uri(path), copy, kind)
        return copy.open("r+b")


def _write_copy(source: str, target: Path, kind: FileKind) -> None:
    """Copy the experiments, rounds and refusals of a database at an address to a new database.

    Sums and ids of reports are never written to it, so there is nothing in it to erase. SQLite copies row by row, in
    constant memory, and lets other threads run.
    """
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(target.absolute().as_uri(), uri=True, isolation_level=None)) as copy:
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=MEMORY"):  # a failed copy is thrown away
            copy.execute(f"PRAGMA {pragma}")
        make_tables(copy, kind)
        copy.execute("ATTACH ? AS source", (source,))
        for table in _TABLES:
            columns = [row[1] for row in copy.execute(f"PRAGMA main.table_info({table})")]
            values = ["x''" if (table, name) == _EXCLUDED_COLUMN else name for name in columns]
            copy.execute(
                f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM source.{table}"  # noqa: S608 - our own names
            )


def restore(backup: Path, data: Path, kind: FileKind) -> None:
    """Create a data folder from a backup's database, for a server to start on.

    A copy of a server's own file is accepted too, and its sums and ids are not copied. Rounds that are open in it are
    given up when the server starts, and continue under versions that were never published.

    backup: the file of the backup.
    data: an empty or missing folder.
    """
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise SpecError("the folder is not empty", field="DATA", remedy="name a folder that is empty or does not exist")
    if not backup.is_file():
        raise SpecError(f"there is no {backup.name}", field="DIR", remedy="name a folder that privateer backup made")
    try:
        with _migrate_backup(backup, kind) as source:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            data.chmod(0o700)
            with durable_file(data / backup.name) as draft:
                _write_copy(source, draft, kind)
    except sqlite3.Error:
        raise _invalid_backup_error(backup) from None


@contextmanager
def _migrate_backup(backup: Path, kind: FileKind) -> Iterator[str]:
    """Yield the address of a backup in this schema version: the file's, or that of a migrated copy in memory."""
    with closing(sqlite3.connect(immutable_uri(backup), uri=True)) as db:
        check_kind(db, backup, kind)
        if read_pragma(db, "user_version") == kind.version:
            yield immutable_uri(backup)
            return
        with closing(sqlite3.connect(_MIGRATED_COPY_URI, uri=True, isolation_level=None)) as copy:
            db.backup(copy)
            bring_up_to_date(copy, kind)
            yield _MIGRATED_COPY_URI


def check_intact(path: Path) -> None:
    """Refuse a file that is not an intact SQLite database."""
    try:
        with closing(sqlite3.connect(immutable_uri(path), uri=True)) as db:
            is_intact = db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.Error:
        is_intact = False
    if not is_intact:
        raise _invalid_backup_error(path)


def _invalid_backup_error(path: Path) -> SpecError:
    return SpecError(f"{path.name} is damaged, or no backup", field="DIR", remedy="take another")


@contextmanager
def durable_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new private file, which is renamed when complete and on disk, and deleted after an error."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield draft
        fsync_path(draft)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
