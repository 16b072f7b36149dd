"""Whether a disk takes anything."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 10.0


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


async def watch_disk(is_writable: Callable[[], Awaitable[bool]], log: logging.Logger) -> None:
    """Look now and then whether data can be written, and log when that changes, until the task is cancelled.

    So the log tells when the disk failed, and not when somebody sent something that it did not take.
    """
    was = True
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = await is_writable()
        if was and not now:
            log.error("the data cannot be written: make room on the disk, or see to the database; nothing is taken")
        elif now and not was:
            log.warning("the data can be written again")
        was = now
