"""How fast the report path is, as a share of what one core can open, and how fast the accountant composes."""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer.accounting.accountant import account
from privateer.accounting.events import Event, Laplace, Pure, Repeated
from privateer_lab.demo import demo_spec
from privateer_lab.load import run_load
from privateer_lab.rest import create
from privateer_lab.services import free_port, running

_OPENS: Final = 20_000
_EXPERIMENTS: Final = 2
_COMPOSED: Final = 100
_DELTA: Final = 1e-6
_EPSILON: Final = 4.0
_TRIES: Final = 5
_REPORT: Final = 22
"""Bytes of a sealed report's content: 16 of id, 6 of slot and symbol."""


def opens_per_second() -> float:
    """Measure how many reports one core opens per second (HPKE): the baseline."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.generate()
    sealed = suite.encrypt(bytes(_REPORT), key.public_key(), info=b"bench")
    started = time.perf_counter()
    for _ in range(_OPENS):
        suite.decrypt(sealed, key, info=b"bench")
    return _OPENS / (time.perf_counter() - started)


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


def bench_pipeline(users: int, batch: int) -> dict[str, Any]:
    """Have people report through client, shuffler and server over HTTP, sealed and durable.

    Parameters
    ----------
    users
        Simulated people.
    batch
        Sealed reports in one upload; real devices send 1.

    Returns
    -------
    dict
        ``reports_per_second`` accepted, ``opens_per_second`` (before and after, averaged) and ``share``, their ratio.
    """
    before, each = opens_per_second(), users // _EXPERIMENTS
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        running(Path(folder), free_port(), free_port()) as at,
        ProcessPoolExecutor(_EXPERIMENTS) as drivers,
    ):
        # While one experiment learns, people of the other report, as on a server with more than one.
        names = [f"bench-{number}" for number in range(_EXPERIMENTS)]
        for name in names:
            spec = demo_spec(each, name=name, round_size=min(5000, each), round_growth=0.2)
            create(at.admin, spec, at.token)
        started = time.perf_counter()
        how: dict[str, Any] = {"users": each, "batch": batch, "seed": 1, "sender_key": at.sender_key}
        loads = [drivers.submit(run_load, name, at.server, at.shuffler, **how) for name in names]
        results = [load.result() for load in loads]
        seconds = time.perf_counter() - started
    baseline = (before + opens_per_second()) / 2
    accepted = sum(result.accepted for result in results)
    return {
        "people": sum(result.people for result in results),
        "accepted": accepted,
        "reports_per_upload": batch,
        "reports_per_second": accepted / seconds,
        "opens_per_second": baseline,
        "share": accepted / seconds / baseline,
    }
