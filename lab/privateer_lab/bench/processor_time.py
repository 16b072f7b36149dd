"""Processor time and memory of processes, as Linux counts them, and the unit of the report path: opening one report."""

import os
import time
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

_PROC: Final = Path("/proc")
_USER_TICKS: Final = 11
"""Where a process's ticks in user mode stand, after its name; those in the kernel follow."""


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of the children that it has now, in seconds."""
    return sum(_own_seconds(one) for one in (pid, *_children(pid)))


def memory_of(pid: int) -> list[float]:
    """Return the MiB that a process, and then each of its children, has in memory."""
    return [_own_memory(one) for one in (pid, *_children(pid))]


def _own_memory(pid: int) -> float:
    lines = (_PROC / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def _own_seconds(pid: int) -> float:
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_USER_TICKS : _USER_TICKS + 2])) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    tasks = (_PROC / str(pid) / "task").glob("*/children")
    direct = [int(child) for task in tasks for child in task.read_text().split()]
    return [each for child in direct for each in (child, *_children(child))]


_OPENS: Final = 20_000
_REPORT: Final = 22
"""Bytes of a sealed report's content: 16 of id, 6 of slot and symbol."""


def open_seconds() -> float:
    """Measure the processor time of one open (HPKE), in seconds."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.generate()
    sealed = suite.encrypt(bytes(_REPORT), key.public_key(), info=b"bench")
    started = time.process_time()
    for _ in range(_OPENS):
        suite.decrypt(sealed, key, info=b"bench")
    return (time.process_time() - started) / _OPENS
