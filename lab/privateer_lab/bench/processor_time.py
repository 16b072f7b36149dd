"""Measures processor time and memory of processes, and the seconds of opening a report and of the accountant."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Laplace, Pure, Repeated

_PROC: Final = Path("/proc")
_USER_TICKS: Final = 11
"""Where a process's ticks in user mode stand, after its name; those in the kernel follow."""
_OPENS: Final = 20_000
_REPORT: Final = 22
"""Bytes of a sealed report's content: 16 of id, 6 of slot and symbol."""
_COMPOSED: Final = 100
_DELTA: Final = 1e-6
_EPSILON: Final = 4.0
_TRIES: Final = 5


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


def open_seconds() -> float:
    """Measure the processor time of one open (HPKE), in seconds."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.generate()
    sealed = suite.encrypt(bytes(_REPORT), key.public_key(), info=b"bench")
    started = time.process_time()
    for _ in range(_OPENS):
        suite.decrypt(sealed, key, info=b"bench")
    return (time.process_time() - started) / _OPENS


def bench_accountant() -> dict[str, Any]:
    """Measure how long a hundred events take to compose, beside one delta of theirs: the least a search could take.

    Returns
    -------
    dict
        For each kind of event the seconds of one epsilon and of one delta, and their ratio; the best of a few tries.
    """
    found: dict[str, Any] = {"events": _COMPOSED}
    for name, event in (("laplace", Laplace(10.0)), ("pure", Pure(0.1))):
        epsilon, delta = _composing(Repeated(event, _COMPOSED))
        found |= {f"{name}_epsilon_seconds": epsilon, f"{name}_delta_seconds": delta, f"{name}_ratio": epsilon / delta}
    return found


def _composing(event: Event) -> tuple[float, float]:
    epsilon = _best_seconds(lambda: account(event).epsilon(_DELTA))
    return epsilon, _best_seconds(lambda: account(event).delta(_EPSILON))


def _best_seconds(work: Callable[[], object]) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return min(once() for _ in range(_TRIES))
