"""Memory that is free, so that a table that does not fit is refused with figures."""

import math
import os
from pathlib import Path
from typing import Final

_PROCESS: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


def available_memory() -> float:
    """Return the bytes that this process can still use, by the system and by the container it is in."""
    return min(_of_the_system(), _of_the_container())


def _of_the_system() -> float:
    try:
        lines = _PROCESS.read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _of_the_container() -> float:
    try:
        limit, used = ((_GROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        return math.inf if limit == "max" else float(limit) - float(used)
    except OSError:
        return math.inf
