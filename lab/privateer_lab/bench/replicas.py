"""Measures what a second server on the same PostgreSQL database adds, each with a core of its own."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from privateer_core.errors import SpecError, Unavailable
from privateer_core.wire.keys import own_key, publish_key
from privateer_lab.bench.path import EXPERIMENTS, publication, report
from privateer_lab.bench.processor_time import cpu_seconds, open_seconds
from privateer_lab.bench.uploads import bench_spec, seal_round
from privateer_lab.services.processes import Processes, free_port
from privateer_lab.services.rest import create

_BATCH: Final = 100
"""Reports an upload."""
_MOST: Final = 2
_STORE_KEY_BYTES: Final = 32


class _Servers(NamedTuple):
    """The running replicas: their public listeners, the private one of the first, and the processes, by number."""

    urls: list[str]
    admin: str
    token: str
    sender_key: Path
    processes: Processes


def bench_replicas(people: int, database: str, journal: str) -> dict[str, dict[str, float]]:
    """Have as many people report, a hundred an upload, to one server and then to two that share two databases.

    Every server has one core and one process that opens. What sends, and PostgreSQL if it is on this machine, may use
    all cores, also those.

    people: in each run.
    database, journal: the addresses of PostgreSQL databases that nobody else uses.

    Returns
    -------
    dict
        Figures by number of servers: reports a second of wall time, their processor time of a report in multiples of
        one open, the people counted. ``gain`` is how many times as many reports a second two servers take.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _MOST:
        raise SpecError("two servers need two cores", field="--databases", remedy="use a larger machine")
    unit, found = open_seconds(), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder:
        shared = _settings(Path(folder), database, journal)
        for count in range(1, _MOST + 1):
            with _running(Path(folder), shared, cores[:count]) as at:
                found[f"{count} on PostgreSQL"] = _run(at, people, unit)
    one, two = (figures["reports_a_second"] for figures in found.values())
    return found | {"two beside one": {"gain": two / one}}


def _settings(folder: Path, database: str, journal: str) -> dict[str, str]:
    """Make the keys that the servers share, and return their settings."""
    own_key(folder / "identity.key", "--data")
    publish_key(own_key(folder / "sender.key", "--data"), folder / "senders" / "sender.pub")
    (folder / "store.key").write_bytes(secrets.token_bytes(_STORE_KEY_BYTES))
    return {
        "PRIVATEER_DATABASE": database,
        "PRIVATEER_JOURNAL_DATABASE": journal,
        "PRIVATEER_STORE_KEY_FILE": str(folder / "store.key"),
        "PRIVATEER_IDENTITY": str(folder / "identity.key"),
        "PRIVATEER_SENDER_KEYS": str(folder / "senders"),
        "PRIVATEER_ADMIN_TOKEN": secrets.token_urlsafe(24),
        "PRIVATEER_OPENERS": "1",
    }


@contextmanager
def _running(folder: Path, shared: dict[str, str], cores: list[int]) -> Iterator[_Servers]:
    """Start a server on each core."""
    processes, ports = Processes(quiet=True), [(free_port(), free_port()) for _ in cores]
    urls, all_cores = [f"http://127.0.0.1:{port}" for port, _ in ports], os.sched_getaffinity(0)
    try:
        for number, (core, url, (_, admin)) in enumerate(zip(cores, urls, ports, strict=True)):
            os.sched_setaffinity(0, {core})  # a process begins where the one that starts it may be
            how = ("privateer_server.app", shared | {"PRIVATEER_ADMIN_PORT": str(admin)}, url)
            processes.start(str(number), how)
            os.sched_setaffinity(0, all_cores)
            processes.wait(str(number))
        private = f"http://127.0.0.1:{ports[0][1]}"
        yield _Servers(urls, private, shared["PRIVATEER_ADMIN_TOKEN"], folder / "sender.key", processes)
    finally:
        os.sched_setaffinity(0, all_cores)
        processes.stop()


def _run(at: _Servers, people: int, unit: float) -> dict[str, float]:
    each, first = people // EXPERIMENTS, at.urls[0]
    names = [f"bench-{secrets.token_hex(4)}" for _ in range(EXPERIMENTS)]
    for name in names:
        create(at.admin, bench_spec(name, "server", each), at.token)
    key = own_key(at.sender_key, "--data")
    rounds = [seal_round(publication(first, name), name, each, _BATCH, key) for name in names]
    pids = [at.processes.pid(str(number)) for number in range(len(at.urls))]
    before, started = sum(map(cpu_seconds, pids)), time.perf_counter()
    report(first, at.urls, names, rounds)
    wall, used = time.perf_counter() - started, sum(map(cpu_seconds, pids)) - before
    counted = sum(httpx.get(f"{first}/experiments/{name}").raise_for_status().json()["accepted"] for name in names)
    if counted != each * EXPERIMENTS:
        raise Unavailable(f"{counted} of {each * EXPERIMENTS} people are counted", remedy="see the servers' log above")
    return {"reports_a_second": people / wall, "servers": used / people / unit, "counted": counted}
