"""Measures what grows as people report to real services: memory, disks, logs, and how long a restart takes."""

import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from privateer_core.wire.keys import own_key
from privateer_lab.bench.path import EXPERIMENTS, publication, report
from privateer_lab.bench.processor_time import cpu_seconds, memory_of
from privateer_lab.bench.uploads import bench_spec, seal_round
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import IssuerProcess, Services, free_port, running
from privateer_lab.services.rest import create
from privateer_server.store.schema import FILE
from privateer_shuffler.pool.round_file import SUFFIX
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE

LOOK: Final = 100_000
"""Reports between two looks."""
_BATCH: Final = 100
"""Reports an upload."""
_WITH_TOKENS: Final = 4000
"""People with upload tokens at each service; each costs the issuer a signature."""
_ENDPOINTS: Final = ("server", "shuffler")
_TABLES: Final = "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) GROUP BY tbl_name"


def bench_soak(people: int, look: int = LOOK, with_tokens: int = _WITH_TOKENS) -> Iterator[dict[str, dict[str, float]]]:
    """Have people report, round after round, each sealed ahead; yield the memory of every process after every look.

    people: in all; a whole number of looks reports through the shuffler.
    look: people between two looks: a round of each of a few experiments.
    with_tokens: people who report afterwards to each of the two services, one by one with upload tokens.

    Yields
    ------
    dict
        Figures by table. ``memory`` has the people so far, and the MiB of each process, such as ``server`` and ``server
        1``, the first process that it started; this process, which seals and sends all reports, is the ``generator``.
        At the end come ``seconds`` of restarts after a kill, ``MiB on disk`` by file and table, and ``bytes`` of what
        one person, round or token adds.
    """
    each, looks = look // EXPERIMENTS, max(1, people // look)
    names = [f"bench-{number}" for number in range(EXPERIMENTS)]
    spending = {f"tokens-{endpoint}": endpoint for endpoint in _ENDPOINTS}
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder, Path(folder, "log").open("wb") as log:
        data = Path(folder, "data")
        issuing = IssuerProcess(",".join(spending), free_port())
        with running(data, free_port(), free_port(), log=log, issuing=issuing) as at:
            for name in names:
                create(at.admin, bench_spec(name, "shuffler", each, looks + 1), at.token)
            key = own_key(at.sender_key, "--data")
            for seen in range(1, looks + 1):
                rounds = [seal_round(publication(at.server, name), name, each, _BATCH, key) for name in names]
                report(at.server, at.shuffler, names, rounds, seen + 1)
                yield {"memory": {"people": seen * look} | _memory(at)}
            logged = os.fstat(log.fileno()).st_size
            for name, endpoint in spending.items():
                create(at.admin, bench_spec(name, endpoint, with_tokens), at.token)
                shuffler = at.shuffler if endpoint == "shuffler" else None
                run_load(name, at.server, shuffler, users=with_tokens, batch=1, issuer=at.issuer)
            seconds = {name: figure for service in _ENDPOINTS for name, figure in _restart(at, service).items()}
        sizes = _sizes(data)
        yield {
            "seconds": seconds,
            "MiB on disk": {name: size / (1 << 20) for name, size in sizes.items()},
            "bytes": _bytes(data, sizes, with_tokens) | {"log, a person": logged / (looks * look)},
        }


def _memory(at: Services) -> dict[str, float]:
    sizes = {"generator": memory_of(os.getpid())[0]}
    for name in ("shuffler", "server"):
        size, *children = memory_of(at.processes.pid(name))
        sizes |= {name: size} | {f"{name} {number}": child for number, child in enumerate(children, 1)}
    return sizes


def _restart(at: Services, service: str) -> dict[str, float]:
    at.processes.kill(service)
    started = time.perf_counter()
    at.processes.start(service)
    at.processes.wait(service)
    return {
        f"restart of the {service}": time.perf_counter() - started,
        f"restart of the {service}, processor time": cpu_seconds(at.processes.pid(service)),
    }


def _sizes(data: Path) -> Counter[str]:
    """Return the bytes of each table with its indexes, by service, file and table; rounds of a shuffler are one."""
    sizes = Counter[str]()
    for path in sorted(data.glob("*/*.db")) + sorted(data.glob("*/*.sqlite")):
        service, is_round = path.parent.name, path.match(f"shuffler/*{SUFFIX}")
        with closing(sqlite3.connect(path)) as db:
            for table, size in db.execute(_TABLES):
                sizes[f"{service}/{f'*{SUFFIX}' if is_round else path.name}: {table}"] += size
    return sizes


def _bytes(data: Path, sizes: Mapping[str, int], tokens: int) -> dict[str, float]:
    spent, file = f"server/{FILE}: spent_tokens", f"server/{FILE}: "
    with closing(sqlite3.connect(data / "server" / FILE)) as db:
        rounds, experiments = (
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - our own names
            for table in ("rounds", "experiments")
        )
    published = sum(size for name, size in sizes.items() if name.startswith(file) and name != spent)
    journal = sum(size for name, size in sizes.items() if name.startswith("server/journal.db"))
    return {
        "server, a round": published / rounds,
        "journal, an experiment": journal / experiments,
        "server, a spent token": sizes[spent] / tokens,
        "shuffler, a spent token": sizes[f"shuffler/{TOKENS_FILE}: spent"] / tokens,
    }
