"""Soak test of real services: growth of memory, disks and logs with reports, and restart times."""

import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from privateer_core.wire.keys import load_or_create_key
from privateer_lab.bench.path import (
    N_EXPERIMENTS,
    bench_spec,
    cpu_seconds,
    fetch_policy,
    rss_mib,
    seal_round,
    upload_and_await_policy,
)
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services
from privateer_lab.services.rest import create_experiment
from privateer_server.store.schema import STORE_FILE
from privateer_shuffler.pool.round_file import SUFFIX
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE

LOOK: Final = 100_000
"""Reports between two measurements."""
_BATCH: Final = 100
"""Reports per upload."""
_N_TOKENS: Final = 4000
"""Participants with upload tokens at each service; each token needs a signature of the issuer."""
_ENDPOINTS: Final = ("server", "shuffler")
_FiguresByTable = dict[str, dict[str, float]]
_TABLE_SIZES_QUERY: Final = "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name) GROUP BY tbl_name"


def bench_soak(n_participants: int, look: int = LOOK, n_tokens: int = _N_TOKENS) -> Iterator[_FiguresByTable]:
    """Send rounds of reports that are sealed beforehand; yield the memory of every process after each measurement.

    n_participants: their number, rounded to measurements; they report through the shuffler.
    look: participants between two measurements: a round of each of a few experiments.
    n_tokens: participants who then report to each of the two services, in single uploads with tokens.

    Figures are by table. ``memory`` has the people so far, and the MiB of each process, such as ``server`` and ``server
    1``, the first process that it started; this process, which seals and sends all reports, is the ``generator``. At
    the end come ``seconds`` of restarts after a kill, ``MiB on disk`` by file and table, and ``bytes`` of what one
    person, round or token adds.
    """
    n_each, n_looks = look // N_EXPERIMENTS, max(1, n_participants // look)
    names = [f"bench-{number}" for number in range(N_EXPERIMENTS)]
    token_experiments = {f"tokens-{endpoint}": endpoint for endpoint in _ENDPOINTS}
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder, Path(folder, "log").open("wb") as log:
        data = Path(folder, "data")
        issuer_process = IssuerProcess(",".join(token_experiments), free_port())
        with run_services(data, free_port(), free_port(), log=log, issuing=issuer_process) as services:
            for name in names:
                create_experiment(services.admin, bench_spec(name, "shuffler", n_each, n_looks + 1), services.token)
            key = load_or_create_key(services.sender_key, "--data")
            for look_number in range(1, n_looks + 1):
                rounds = [seal_round(fetch_policy(services.server, name), name, n_each, _BATCH, key) for name in names]
                upload_and_await_policy(services.server, services.shuffler, names, rounds, look_number + 1)
                yield {"memory": {"people": look_number * look} | _measure_memory(services)}
            log_bytes = os.fstat(log.fileno()).st_size
            for name, endpoint in token_experiments.items():
                create_experiment(services.admin, bench_spec(name, endpoint, n_tokens), services.token)
                shuffler = services.shuffler if endpoint == "shuffler" else None
                run_load(name, services.server, shuffler, users=n_tokens, batch=1, issuer=services.issuer)
            seconds = {
                name: figure for service in _ENDPOINTS for name, figure in _kill_and_restart(services, service).items()
            }
        sizes = _measure_sizes(data)
        yield {
            "seconds": seconds,
            "MiB on disk": {name: size / (1 << 20) for name, size in sizes.items()},
            "bytes": _compute_added_bytes(data, sizes, n_tokens) | {"log, a person": log_bytes / (n_looks * look)},
        }


def _measure_memory(services: Services) -> dict[str, float]:
    """Measure resident memory in MiB of the generator and of the services' processes."""
    sizes = {"generator": rss_mib(os.getpid())[0]}
    for name in ("shuffler", "server"):
        size, *children = rss_mib(services.processes.pid(name))
        sizes |= {name: size} | {f"{name} {number}": child for number, child in enumerate(children, 1)}
    return sizes


def _kill_and_restart(services: Services, service: str) -> dict[str, float]:
    """Kill and restart a service; return the seconds until it is ready."""
    services.processes.kill(service)
    started = time.perf_counter()
    services.processes.start(service)
    services.processes.wait(service)
    return {
        f"restart of the {service}": time.perf_counter() - started,
        f"restart of the {service}, processor time": cpu_seconds(services.processes.pid(service)),
    }


def _measure_sizes(data: Path) -> Counter[str]:
    """Return the bytes of each table with indexes by service, file and table; all rounds of a shuffler are added."""
    sizes = Counter[str]()
    for path in sorted(data.glob("*/*.db")) + sorted(data.glob("*/*.sqlite")):
        service, is_round = path.parent.name, path.match(f"shuffler/*{SUFFIX}")
        with closing(sqlite3.connect(path)) as db:
            for table, size in db.execute(_TABLE_SIZES_QUERY):
                sizes[f"{service}/{f'*{SUFFIX}' if is_round else path.name}: {table}"] += size
    return sizes


def _compute_added_bytes(data: Path, sizes: Mapping[str, int], tokens: int) -> dict[str, float]:
    """Compute the bytes on disk that a round, an experiment and a spent token add."""
    spent_table, store_prefix = f"server/{STORE_FILE}: spent_tokens", f"server/{STORE_FILE}: "
    with closing(sqlite3.connect(data / "server" / STORE_FILE)) as db:
        rounds, experiments = (
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - our own names
            for table in ("rounds", "experiments")
        )
    published = sum(size for name, size in sizes.items() if name.startswith(store_prefix) and name != spent_table)
    journal = sum(size for name, size in sizes.items() if name.startswith("server/journal.db"))
    return {
        "server, a round": published / rounds,
        "journal, an experiment": journal / experiments,
        "server, a spent token": sizes[spent_table] / tokens,
        "shuffler, a spent token": sizes[f"shuffler/{TOKENS_FILE}: spent"] / tokens,
    }
