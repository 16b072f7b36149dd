"""Folders, permissions, free space, and the clock."""

import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from privateer_lab.doctor.checkup import Checkup

MIB: Final = 1 << 20
_SPARE: Final = 64 * MIB
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PUBLIC: Final = (".pub", ".json")
"""Suffixes of files that others read: public keys of services, and of issuers."""
_UNNAMED: Final = 32
"""Files whose names are as long are named by a key or a digest, and told by their kind alone."""
_CLOCK_SECONDS: Final = 60
_FIRST_SECOND: Final = 1_735_689_600
"""The year 2025 began, when there was no Privateer."""


def has_data(found: Checkup, folder: Path) -> bool:
    """Check that a data folder can be read, and whether other users can; False if there is nothing to look at."""
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
    """Check that the disks of folders have 64 MiB and room for so many bytes of data, and better twice as much."""
    needed = _SPARE + data
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
    elif now < newest - _CLOCK_SECONDS:
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
