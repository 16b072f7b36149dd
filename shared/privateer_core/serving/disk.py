"""Whether a disk takes anything."""

import os
import tempfile
from pathlib import Path


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder and is durable now; it is gone when this returns."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True
