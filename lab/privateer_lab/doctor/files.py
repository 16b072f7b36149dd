"""Folders, permissions, free space, and who holds a database."""

import os
import shutil
import stat
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from privateer_lab.doctor.checks import Checkup

MIB: Final = 1 << 20
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_PUBLIC: Final = (".pub", ".json")
"""Suffixes of files that others read: public keys of services, and of issuers."""
_UNNAMED: Final = 32
"""Files whose names are as long are named by a key or a digest, and told by their kind alone."""
_CLOCK_SECONDS: Final = 60
_FIRST_SECOND: Final = 1_735_689_600
"""The year 2025 began, when there was no Privateer."""
# SQLite locks these bytes of its files (https://sqlite.org/src/file/src/os.h).
_LOCKED_FROM: Final = 0x40000000
_LOCKED_BYTES: Final = 512
_FLOCK: Final = "hhqqi4x"
"""Linux's struct flock where numbers of files have 64 bits."""


def check_folder(found: Checkup, folder: Path, setting: str) -> bool:
    """Check that a data folder can be read, and whether other users can; False if there is nothing to look at."""
    if not folder.is_dir():
        found.fail("folder", f"there is no folder {folder}", f"correct {setting}, or start the service once")
        return False
    if not os.access(folder, os.R_OK | os.X_OK):
        found.fail("folder", f"{folder} cannot be read", "run the doctor as the user of the service")
        return False
    _check_permissions(found, folder)
    return True


def _check_permissions(found: Checkup, folder: Path) -> None:
    inside = list(_entries(folder))
    exposed = [path for path in [folder, *inside] if path.suffix not in _PUBLIC and _mode(path) & _OTHERS]
    if exposed:
        detail = f"other users may read or change {shown(exposed[0])}" + _and_more(len(exposed) - 1)
        found.fail("permissions", detail, f"chmod -R go= {folder}, and replace keys that others may have read")
    elif foreign := [path for path in inside if _owner(path) != _owner(folder)]:
        detail = f"{shown(foreign[0])} belongs to another user than its folder" + _and_more(len(foreign) - 1)
        found.warn("permissions", detail, "give all files to the user of the service (chown -R)")
    else:
        found.ok("permissions", "files are their owner's alone")


def check_secret(found: Checkup, path: Path) -> None:
    """Check that a private key outside a data folder is its owner's alone."""
    if _mode(path) & _OTHERS:
        found.fail("permissions", f"other users may read {path.name}", f"chmod go= {path}, and make a new key")


def is_open_to_writers(path: Path) -> bool:
    """Whether other users may change a file or the names in its folder."""
    return bool((_mode(path) | _mode(path.parent)) & stat.S_IWOTH)


def check_disk(found: Checkup, folders: Sequence[Path], needed: int) -> None:
    """Check that the disks of folders have so many bytes to spare, and better twice as many."""
    free = min(shutil.disk_usage(folder).free for folder in folders)
    detail = f"{free // MIB:,} MiB are free, and {-(-needed // MIB):,} MiB may be needed at once"
    remedy = "make room, or move the data to a larger disk; nothing acknowledged is lost"
    if free < needed:
        found.fail("disk", detail, remedy)
    elif free < 2 * needed:
        found.warn("disk", detail, remedy)
    else:
        found.ok("disk", detail)


def check_clock(found: Checkup, folder: Path, recorded: float = 0.0) -> None:
    """Compare the clock with the newest time on record, in seconds since 1970, and with those of files.

    By how much it is behind is not told: at a shuffler that would be when somebody reported.
    """
    now, newest = time.time(), max([recorded, *(_changed(path) for path in [folder, *_entries(folder)])])
    remedy = "set the clock right (timedatectl, NTP) before the service starts"
    if now < _FIRST_SECOND:
        found.fail("clock", "the clock is not set", remedy)
    elif now < newest - _CLOCK_SECONDS:
        found.fail("clock", "the clock is more than a minute behind the newest time on record", remedy)
    else:
        found.ok("clock", "the clock is not behind what is on record")


def is_held(path: Path) -> bool | None:
    """Whether another process has a database open; None: that cannot be told here. This takes no lock."""
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


def shown(path: Path) -> str:
    """Name a file, but not by a key or a digest."""
    return path.name if len(path.stem) < _UNNAMED else f"a {path.suffix} file of {path.parent.name}"


def _and_more(others: int) -> str:
    return f" and {others:,} more" if others else ""


def _entries(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if not path.is_symlink())


def _mode(path: Path) -> int:
    with suppress(FileNotFoundError):  # a running service has deleted it
        return path.stat().st_mode
    return 0


def _owner(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return path.stat().st_uid
    return None


def _changed(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
