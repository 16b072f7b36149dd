"""A service's data: folders, permissions, free space, the clock; and databases, which the doctor reads as they are.

Nothing is written to a database, and none is read into memory.
"""

import os
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Final

import msgspec

from privateer_core.errors import PrivateerError, SpecError
from privateer_core.serving.store.copies import FileView, Unsettled, checked_view
from privateer_core.serving.store.database import Database, Schema
from privateer_core.serving.store.sqlite import SPARE_BYTES, FileKind
from privateer_lab.doctor.checkup import Checkup

MIB: Final = 1 << 20
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PUBLIC: Final = (".pub", ".json")
"""Suffixes of files that others read: public keys of services, and of issuers."""
_UNNAMED: Final = 32
"""Files whose names are as long are named by a key or a digest, and told by their kind alone."""
CLOCK_SECONDS: Final = 60
_FIRST_SECOND: Final = 1_735_689_600
"""The year 2025 began, when there was no Privateer."""
RESTORE: Final = "restore a backup into an empty folder"
_TRIAL: Final = "import os, sys; os.close(os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY, 0o600))"
_TRIAL_SECONDS: Final = 10
UNREADABLE: Final = (PrivateerError, sqlite3.Error, OSError, msgspec.DecodeError, TypeError, ValueError)
"""What stores raise whose rows are not what they should be."""


def has_data(found: Checkup, folder: Path, *elsewhere: Path) -> bool:
    """Check that data folders end writes, and who can read the first one; False if there is nothing to look at."""
    if not all(_ends_writes(found, place) for place in dict.fromkeys((folder, *elsewhere))):
        return False
    if not folder.is_dir():
        found.fail("folder", f"there is no folder {folder}", "correct PRIVATEER_DATA, or start the service once")
        return False
    if not os.access(folder, os.R_OK | os.X_OK):
        found.fail("folder", f"{folder} cannot be read", "run the doctor as the user of the service")
        return False
    _check_permissions(found, folder)
    if any(folder.iterdir()):
        return True
    remedy = f"nothing, if the {found.service} never started; else correct PRIVATEER_DATA"
    found.warn("folder", "the folder is empty", remedy)
    return False


def _ends_writes(found: Checkup, folder: Path) -> bool:
    """Check that a disk ends a write, whatever comes of it: the doctor would wait for as long as a disk stands still.

    Another process tries it, with a file without a name, and is left behind then: nobody can end what waits for a disk.
    """
    command = [sys.executable, "-ISc", _TRIAL, str(folder)]
    trial = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    with suppress(TimeoutExpired):
        trial.wait(_TRIAL_SECONDS)
        return True
    trial.kill()
    with suppress(TimeoutExpired):
        trial.wait(1)
    detail = f"a write to {folder} did not end within {_TRIAL_SECONDS} seconds, so that nothing else was looked at"
    found.fail("folder", detail, "see why its disk stands still (PrivateerStoreStalled in docs/operations/alerts.md)")
    return False


def check_writable(found: Checkup, folder: Path, *elsewhere: Path) -> None:
    """Check that a folder can be written, with those below it and the databases in them, and what is ``elsewhere``.

    The doctor may run as root, who may write what the owner may not: so the owner's permission counts as well.
    """
    endings = (".db", ".sqlite", ".db-wal", ".sqlite-wal")
    inside = [path for path in sorted(folder.rglob("*")) if path.is_dir() or path.name.endswith(endings)]
    places = dict.fromkeys((folder, *inside, *elsewhere))
    locked = [path for path in places if not (_stat(path).st_mode & stat.S_IWUSR and os.access(path, os.W_OK))]
    if locked := [path for path in locked if path.exists()]:  # a running service may have deleted one
        remedy = "chmod u+w, or mount its disk for writing; the service goes on by itself, or start it again"
        found.fail("folder", f"{shown(locked[0])} cannot be written{_and_more(len(locked) - 1)}", remedy)


def _check_permissions(found: Checkup, folder: Path) -> None:
    inside = list(_entries(folder))
    exposed = [path for path in [folder, *inside] if path.suffix not in _PUBLIC and _stat(path).st_mode & _OTHERS]
    if exposed:
        detail = f"other users may read or change {shown(exposed[0])}" + _and_more(len(exposed) - 1)
        found.fail("permissions", detail, f"chmod -R go= {folder}, and replace keys that others may have read")
    elif foreign := [path for path in inside if _stat(path).st_mode and _stat(path).st_uid != folder.stat().st_uid]:
        detail = f"{shown(foreign[0])} belongs to another user than its folder" + _and_more(len(foreign) - 1)
        found.warn("permissions", detail, "give all files to the user of the service (chown -R)")
    else:
        found.ok("permissions", "files are their owner's alone")


def check_secret(found: Checkup, path: Path) -> None:
    """Check that a private key outside a data folder is its owner's alone."""
    if _stat(path).st_mode & _OTHERS:
        found.fail("permissions", f"other users may read {path.name}", f"chmod go= {path}, and make a new key")


def is_open_to_writers(path: Path) -> bool:
    """Whether other users may change a file or the names in its folder."""
    return bool((_stat(path).st_mode | _stat(path.parent).st_mode) & stat.S_IWOTH)


def check_disk(found: Checkup, folders: Sequence[Path], data: int = 0) -> None:
    """Check that the disks of folders have what the alert asks for beside so much of data, and better twice as much."""
    needed = SPARE_BYTES + data
    free = min(shutil.disk_usage(folder).free for folder in folders)
    detail = f"{free // MIB:,} MiB are free, and {-(-needed // MIB):,} MiB may be needed at once"
    remedy = "make room, or move the data to a larger disk; nothing acknowledged is lost"
    if free < needed:
        found.fail("disk", detail, remedy)
    elif free < 2 * needed:
        found.warn("disk", detail, remedy)
    else:
        found.ok("disk", detail)


def check_clock(found: Checkup, folder: Path | None, recorded: float = 0.0) -> None:
    """Compare the clock with the newest time on record, in seconds since 1970, and with those of files in a folder.

    By how much it is behind stays out of the line: at a shuffler that would be when somebody reported.
    """
    files = [folder, *_entries(folder)] if folder else []
    now, newest = time.time(), max([recorded, *(_stat(path).st_mtime for path in files)])
    remedy = "set the clock right (timedatectl, NTP) before the service starts"
    if now < _FIRST_SECOND:
        found.fail("clock", "the clock is not set", remedy)
    elif now < newest - CLOCK_SECONDS:
        found.fail("clock", "the clock is more than a minute behind the newest time on record", remedy)
    else:
        found.ok("clock", "the clock is not behind what is on record")


def shown(path: Path) -> str:
    """Name a file, but not by a key or a digest."""
    return path.name if len(path.stem) < _UNNAMED else f"a {path.suffix} file of {path.parent.name}"


def _and_more(others: int) -> str:
    return f" and {others:,} more" if others else ""


def _entries(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_symlink())


def _stat(path: Path) -> os.stat_result:
    """Return the facts of a file; all are 0 if a running service has deleted it."""
    with suppress(FileNotFoundError):
        return path.stat()
    return os.stat_result((0,) * 10)


def viewed(found: Checkup, check: str, path: Path, kind: FileKind) -> FileView | None:
    """Return a view of a file that may be read; None, and a finding that says why, if there is none."""
    name = shown(path)
    try:
        view = checked_view(path, kind)
    except Unsettled:
        found.warn(check, f"{name} changes all the time", "run the doctor again when fewer people report")
        return None
    except SpecError as error:
        found.fail(check, error.detail.replace(path.name, name), error.remedy or kind.repair)
        return None
    if view is None:
        found.warn(check, f"{name} is empty", "nothing, if the service never started; else restore a backup")
        return None
    _check_version(found, check, name, view.facts.version, kind.version)
    return view


def connected(found: Checkup, check: str, url: str, schema: Schema, setting: str) -> Database | None:
    """Return a PostgreSQL database that may be read; None, and a finding that says why, if there is none."""
    from privateer_core.serving.store.postgres import PostgresDatabase

    try:
        database = PostgresDatabase(url, schema, setting, is_read_only=True)
    except SpecError as error:
        found.fail(check, f"{setting}: {error.detail}", error.remedy or "correct it")
        return None
    try:
        facts = database.examine()
    except OSError as error:
        database.close()
        found.fail(check, f"{setting}: {error}", "check that it runs, its address and its owner")
        return None
    if not facts.is_whole:
        found.fail(check, f"PostgreSQL has met pages with wrong checksums in the {schema.name}'s database", RESTORE)
    if not facts.version:
        remedy = f"nothing, if the service never started; else correct {setting}"
        found.warn(check, f"the {schema.name}'s database is empty", remedy)
    elif facts.version < schema.version:
        _check_version(found, check, f"the {schema.name}'s database", facts.version, schema.version)
    else:
        size = -(-facts.size // MIB)
        found.ok(check, f"the {schema.name}'s database answers, schema {facts.version}, {size:,} MiB")
        return database
    database.close()
    return None


def _check_version(found: Checkup, check: str, name: str, version: int, present: int) -> None:
    """Say what a start migrates."""
    if version < present:
        detail = f"{name} is of an earlier Privateer: the next start brings it from schema {version} to {present}"
        found.warn(check, detail, "keep a backup, since the earlier one does not read it then; and start the service")
