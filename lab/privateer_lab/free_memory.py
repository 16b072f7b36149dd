"""How much memory a simulation may still take."""

import math
import os
from pathlib import Path
from typing import Final

from privateer.errors import SpecError

_PROCESS: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


def available_memory() -> float:
    """Bytes that this process can still use, by the system and by the container it is in."""
    return min(_of_the_system(), _of_the_container())


def check_memory(needed: float, free: float, *, what: str, field: str, remedy: str) -> None:
    """Refuse what cannot fit.

    Parameters
    ----------
    needed, free
        Bytes.
    what, field, remedy
        What takes the memory, where it is named, and what to do.

    Raises
    ------
    SpecError
        With both figures.
    """
    if needed > free:
        message = f"{what} needs {needed / 2**30:,.2f} GiB of memory, and {max(free, 0.0) / 2**30:,.2f} GiB are free"
        raise SpecError(message, field=field, remedy=remedy)


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
