"""Whether a service can write where its data are. Nothing is written to find out."""

import os
import stat
from pathlib import Path
from typing import Final

from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.stored_data import shown

_DATABASES: Final = (".db", ".sqlite", ".db-wal", ".sqlite-wal")
_REMEDY: Final = "chmod u+w, or mount its disk for writing; the service goes on by itself, or start it again"


def check_writable(found: Checkup, folder: Path, *elsewhere: Path) -> None:
    """Check that a folder can be written, with those below it and the databases in them, and what is ``elsewhere``.

    The doctor may run as root, who may write what the owner may not: so the owner's permission counts as well.
    """
    inside = [path for path in sorted(folder.rglob("*")) if path.is_dir() or path.name.endswith(_DATABASES)]
    locked = [path for path in dict.fromkeys((folder, *inside, *elsewhere)) if not _is_writable(path)]
    if locked:
        others = f" and {len(locked) - 1:,} more" if len(locked) > 1 else ""
        found.fail("folder", f"{shown(locked[0])} cannot be written{others}", _REMEDY)


def _is_writable(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IWUSR) and os.access(path, os.W_OK)
    except FileNotFoundError:  # a running service has deleted it, or a start makes it
        return True
