"""The data folder, held by one process."""

import fcntl
import os
from pathlib import Path
from typing import Final

from privateer.errors import SpecError

_FILE: Final = "lock"


class Folder:
    """The folder of key and reports, made if missing and locked until it is released.

    It is locked before anything in it is read or made: two shufflers that start at once on an empty folder do not both
    make a key.

    Raises
    ------
    SpecError
        If another shuffler holds it.
    OSError
        If it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self._lock = os.open(path / _FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SpecError(
                "another shuffler uses the folder",
                field="PRIVATEER_DATA",
                remedy="stop that one, or name another folder",
            ) from None

    def release(self) -> None:
        """Let another process have it."""
        os.close(self._lock)
