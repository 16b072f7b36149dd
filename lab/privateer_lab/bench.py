"""How fast the report path is, as a share of what one core can open; one run measures both."""

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_lab.demo import demo_spec
from privateer_lab.load import run_load
from privateer_lab.rest import create
from privateer_lab.services import free_port, running

_OPENS: Final = 20_000
_EXPERIMENTS: Final = 2
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
