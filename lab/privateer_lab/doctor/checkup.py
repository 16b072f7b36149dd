"""Findings of the doctor, and checks of files, folders and databases."""

import os
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Any, Final, TypeVar

import msgspec

from privateer_core.errors import PrivateerError, SpecError, printable
from privateer_core.serving.store.copies import FileView, UnstableDatabase, open_view
from privateer_core.serving.store.database import Database, Schema, Unreachable
from privateer_core.serving.store.sqlite import SPARE_BYTES, FileKind

T = TypeVar("T")
_MAX_LOOKS: Final = 10
"""Largest number of attempts: a round of a running service may close while its files are read."""
_LOOK_SECONDS: Final = 0.4


class Level(IntEnum):
    """The severity of a finding."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True)
class Check:
    """A finding."""

    # service, check: names of the service and of the check
    service: str
    check: str
    level: Level
    detail: str  # the finding, without keys or facts about participants
    remedy: str = ""  # the remedy; empty if there is no problem

    def format_line(self) -> str:
        """Return the finding as a line of text."""
        advice = f" ({self.remedy})" if self.remedy else ""
        return printable(f"{self.level.name.lower():<4}  {self.service:<8}  {self.check:<11}  {self.detail}{advice}")

    def document(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return asdict(self) | {"level": self.level.name.lower()}


class Checkup:
    """The findings about one service, in order."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.checks: list[Check] = []

    def ok(self, check: str, detail: str) -> None:
        """Add a finding without a problem."""
        self.checks.append(Check(self.service, check, Level.OK, detail))

    def warn(self, check: str, detail: str, remedy: str) -> None:
        """Add a problem that is not urgent."""
        self.checks.append(Check(self.service, check, Level.WARN, detail, remedy))

    def fail(self, check: str, detail: str, remedy: str) -> None:
        """Add a problem that stops the service or breaks its promises."""
        self.checks.append(Check(self.service, check, Level.FAIL, detail, remedy))

    def refuse(self, check: str, error: SpecError) -> None:
        """Add an error that a service would raise at its start."""
        self.fail(check, error.detail, error.remedy or "correct it")

    def refuse_unreadable(self, check: str, detail: str, error: Exception, remedy: str) -> None:
        """Add a read error of a store, with PostgreSQL's reason, which quotes no row."""
        self.fail(check, f"{detail}: {error}" if isinstance(error, Unreachable) else detail, remedy)

    def add_all(self, level: Level, check: str, names: Sequence[str], detail: str, remedy: str) -> None:
        """Add a finding for all names, if any, with the first name for ``{}`` and the number of further names."""
        if names:
            others = f", and so for {len(names) - 1:,} more" if len(names) > 1 else ""
            self.checks.append(Check(self.service, check, level, detail.format(names[0]) + others, remedy))

    def repeat(self, examine: Callable[["Checkup"], T], *, is_final: bool) -> T:
        """Examine several files or databases and add the findings; unless ``is_final``, repeat until all is well.

        A running service may change a file while others are read. The findings of the tenth attempt are final, or those
        of an attempt that returns None because files are unreadable.
        """
        for number in range(1, _MAX_LOOKS + 1):
            attempt = Checkup(self.service)
            result = examine(attempt)
            if is_final or result is None or attempt.worst_level is Level.OK or number == _MAX_LOOKS:
                break
            time.sleep(_LOOK_SECONDS)
        self.checks += attempt.checks
        return result

    @property
    def worst_level(self) -> Level:
        """The highest severity of the findings so far."""
        return max((check.level for check in self.checks), default=Level.OK)


MIB: Final = 1 << 20
_OTHER_USERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PUBLIC_SUFFIXES: Final = (".pub", ".json")
"""Suffixes of files with public keys of services and issuers, which others may read."""
_MAX_NAME_LENGTH: Final = 32
"""Length from which file names are keys or digests, which are not shown."""
CLOCK_SECONDS: Final = 60
_EARLIEST_TIME: Final = 1_735_689_600
"""Start of 2025: an earlier clock is not set."""
RESTORE: Final = "restore a backup into an empty folder"
_TRIAL_CODE: Final = "import os, sys; os.close(os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY, 0o600))"
_TRIAL_SECONDS: Final = 10
UNREADABLE: Final = (PrivateerError, sqlite3.Error, OSError, msgspec.DecodeError, TypeError, ValueError)
"""Exceptions of stores with invalid rows."""


def check_data(checkup: Checkup, folder: Path, *elsewhere: Path) -> bool:
    """Check that disks respond, and the first folder's permissions; return whether it has readable data."""
    if not all(_check_write_speed(checkup, data_folder) for data_folder in dict.fromkeys((folder, *elsewhere))):
        return False
    if not folder.is_dir():
        checkup.fail("folder", f"there is no folder {folder}", "correct PRIVATEER_DATA, or start the service once")
        return False
    if not os.access(folder, os.R_OK | os.X_OK):
        checkup.fail("folder", f"{folder} cannot be read", "run the doctor as the user of the service")
        return False
    _check_permissions(checkup, folder)
    if any(folder.iterdir()):
        return True
    remedy = f"nothing, if the {checkup.service} never started; else correct PRIVATEER_DATA"
    checkup.warn("folder", "the folder is empty", remedy)
    return False


def _check_write_speed(checkup: Checkup, folder: Path) -> bool:
    """Check that a disk ends a write within the time limit, whether or not the write succeeds.

    A subprocess writes an unnamed file, and is abandoned at the limit: a process that waits for a disk cannot be ended.
    """
    command = [sys.executable, "-ISc", _TRIAL_CODE, str(folder)]
    trial = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    with suppress(TimeoutExpired):
        trial.wait(_TRIAL_SECONDS)
        return True
    trial.kill()
    with suppress(TimeoutExpired):
        trial.wait(1)
    detail = f"a write to {folder} did not end within {_TRIAL_SECONDS} seconds, so that nothing else was looked at"
    checkup.fail("folder", detail, "see why its disk stands still (PrivateerStoreStalled in docs/operations/alerts.md)")
    return False


def check_writable(checkup: Checkup, folder: Path, *elsewhere: Path) -> None:
    """Check that root or the owner may write a folder, its subfolders and databases, and the paths ``elsewhere``."""
    endings = (".db", ".sqlite", ".db-wal", ".sqlite-wal")
    entries = [path for path in sorted(folder.rglob("*")) if path.is_dir() or path.name.endswith(endings)]
    paths = dict.fromkeys((folder, *entries, *elsewhere))
    locked = [path for path in paths if not (_stat_or_zeros(path).st_mode & stat.S_IWUSR and os.access(path, os.W_OK))]
    if locked := [path for path in locked if path.exists()]:  # a running service may have deleted one
        remedy = "run chmod u+w on it, or mount its disk writable; if the service does not recover, start it again"
        checkup.fail("folder", f"{display_name(locked[0])} cannot be written{_format_more(len(locked) - 1)}", remedy)


def _check_permissions(checkup: Checkup, folder: Path) -> None:
    """Check that a folder's private files are their owner's alone and have one owner."""
    entries = list(_iterate_entries(folder))
    private = [path for path in [folder, *entries] if path.suffix not in _PUBLIC_SUFFIXES]
    if exposed := [path for path in private if _stat_or_zeros(path).st_mode & _OTHER_USERS]:
        detail = f"other users may read or change {display_name(exposed[0])}{_format_more(len(exposed) - 1)}"
        checkup.fail("permissions", detail, f"chmod -R go= {folder}, and replace keys that others may have read")
    elif foreign := [
        path for path in entries if _stat_or_zeros(path).st_mode and _stat_or_zeros(path).st_uid != folder.stat().st_uid
    ]:
        detail = f"{display_name(foreign[0])} belongs to another user than its folder" + _format_more(len(foreign) - 1)
        checkup.warn("permissions", detail, "give all files to the user of the service (chown -R)")
    else:
        checkup.ok("permissions", "files are their owner's alone")


def check_secret(checkup: Checkup, path: Path) -> None:
    """Check that only the owner may read a private key outside a data folder."""
    if _stat_or_zeros(path).st_mode & _OTHER_USERS:
        checkup.fail("permissions", f"other users may read {path.name}", f"chmod go= {path}, and make a new key")


def is_open_to_writers(path: Path) -> bool:
    """Whether other users may change a file or the names in its folder."""
    return bool((_stat_or_zeros(path).st_mode | _stat_or_zeros(path.parent).st_mode) & stat.S_IWOTH)


def check_disk(checkup: Checkup, folders: Sequence[Path], data: int = 0) -> None:
    """Check that disks have the alert's free space plus ``data`` bytes, and warn below twice as much."""
    required_bytes = SPARE_BYTES + data
    free_bytes = min(shutil.disk_usage(folder).free for folder in folders)
    detail = f"{free_bytes // MIB:,} MiB are free, and {-(-required_bytes // MIB):,} MiB may be needed at once"
    remedy = "make room, or move the data to a larger disk; nothing acknowledged is lost"
    if free_bytes < required_bytes:
        checkup.fail("disk", detail, remedy)
    elif free_bytes < 2 * required_bytes:
        checkup.warn("disk", detail, remedy)
    else:
        checkup.ok("disk", detail)


def check_clock(checkup: Checkup, folder: Path | None, recorded_time: float = 0.0) -> None:
    """Compare the clock with the newest recorded time, in seconds since 1970, and with file times in a folder.

    The difference is not shown: at a shuffler it would reveal when a participant reported.
    """
    files = [folder, *_iterate_entries(folder)] if folder else []
    now, newest = time.time(), max([recorded_time, *(_stat_or_zeros(path).st_mtime for path in files)])
    remedy = "set the clock right (timedatectl, NTP) before the service starts"
    if now < _EARLIEST_TIME:
        checkup.fail("clock", "the clock is not set", remedy)
    elif now < newest - CLOCK_SECONDS:
        checkup.fail("clock", "the clock is more than a minute behind the newest time on record", remedy)
    else:
        checkup.ok("clock", "the clock is not behind what is on record")


def display_name(path: Path) -> str:
    """Return the name of a file, or its kind if the name is a key or a digest."""
    return path.name if len(path.stem) < _MAX_NAME_LENGTH else f"a {path.suffix} file of {path.parent.name}"


def _format_more(n_others: int) -> str:
    return f" and {n_others:,} more" if n_others else ""


def _iterate_entries(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_symlink())


def _stat_or_zeros(path: Path) -> os.stat_result:
    """Return the status of a file; all zeros if a running service has deleted it."""
    with suppress(FileNotFoundError):
        return path.stat()
    return os.stat_result((0,) * 10)


def open_file_view(checkup: Checkup, check: str, path: Path, kind: FileKind) -> FileView | None:
    """Return a view of a database file; None, with a finding, if it cannot be read."""
    name = display_name(path)
    try:
        view = open_view(path, kind)
    except UnstableDatabase:
        checkup.warn(check, f"{name} changes all the time", "run the doctor again when fewer people report")
        return None
    except SpecError as error:
        checkup.fail(check, error.detail.replace(path.name, name), error.remedy or kind.repair)
        return None
    if view is None:
        checkup.warn(check, f"{name} is empty", "none if the service never started; otherwise restore a backup")
        return None
    _check_version(checkup, check, name, view.facts.version, kind.version)
    return view


def open_read_only(checkup: Checkup, check: str, url: str, schema: Schema, setting: str) -> Database | None:
    """Open a PostgreSQL database read-only; return None, with a finding, if it cannot be read."""
    from privateer_core.serving.store.postgres import PostgresDatabase

    try:
        database = PostgresDatabase(url, schema, setting, is_read_only=True)
    except SpecError as error:
        checkup.fail(check, f"{setting}: {error.detail}", error.remedy or "correct it")
        return None
    try:
        facts = database.examine()
    except OSError as error:
        database.close()
        checkup.fail(check, f"{setting}: {error}", "check that it runs, its address and its owner")
        return None
    if not facts.is_whole:
        checkup.fail(check, f"PostgreSQL has met pages with wrong checksums in the {schema.name}'s database", RESTORE)
    if not facts.version:
        remedy = f"none if the service never started; otherwise correct {setting}"
        checkup.warn(check, f"the {schema.name}'s database is empty", remedy)
    elif facts.version < schema.version:
        _check_version(checkup, check, f"the {schema.name}'s database", facts.version, schema.version)
    else:
        size = -(-facts.size // MIB)
        checkup.ok(check, f"the {schema.name}'s database answers, schema {facts.version}, {size:,} MiB")
        return database
    database.close()
    return None


def _check_version(checkup: Checkup, check: str, name: str, version: int, current: int) -> None:
    """Add a finding if the next start migrates a database."""
    if version < current:
        detail = f"{name} is of an earlier Privateer: the next start brings it from schema {version} to {current}"
        checkup.warn(check, detail, "keep a backup, since the earlier one does not read it then; and start the service")
