"""Benchmarks of cheap responses (unchanged policies, refused uploads), and of servers on shared databases."""

import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import httpx

from privateer_core.errors import SpecError, Unavailable
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import load_or_create_key, publish_key
from privateer_core.wire.publication import MEDIA_TYPE
from privateer_lab.bench import path as report_path
from privateer_lab.services.processes import Processes, free_port, run_services
from privateer_lab.services.rest import create_experiment

_NAME: Final = "bench"
_PAGE: Final = f"/experiments/{_NAME}/policy"
_N_REQUESTS: Final = 10_000
"""Requests of one measurement."""
_N_REPETITIONS: Final = 3
_BODY: Final = bytes(150)
"""Body with the length of one report's envelope."""
_NOT_MODIFIED, _REFUSED = 304, 403
_BARE_SERVER: Final = "bare server"


def bench_answers(n_participants: int) -> dict[str, dict[str, float]]:
    """Measure the processor time of responses without open or storage, in multiples of an open.

    Requests alternate between the server and a bare Starlette application, which responds with 304. ``share_of_bare``
    is the ratio of responses per core to those of the bare application.
    """
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        run_services(Path(folder), free_port(), free_port(), quiet=True) as services,
    ):
        bare_url, processes = f"http://127.0.0.1:{free_port()}", services.processes
        processes.start(_BARE_SERVER, (__name__, {}, bare_url))
        processes.wait(_BARE_SERVER)
        create_experiment(services.admin, report_path.bench_spec(_NAME, "server", n_participants), services.token)
        tag = httpx.get(services.server + _PAGE, headers={"Accept": MEDIA_TYPE}).raise_for_status().headers["etag"]
        headers = f"Host: bench\r\nAccept: {MEDIA_TYPE}\r\nIf-None-Match: {tag}\r\n\r\n"
        unchanged_request, forged_request = f"GET {_PAGE} HTTP/1.1\r\n{headers}".encode(), _build_forged_upload()
        server_pid, bare_pid, rows = processes.pid("server"), processes.pid(_BARE_SERVER), []
        for _ in range(_N_REPETITIONS):
            bare_seconds = _measure_seconds(bare_url, bare_pid, unchanged_request, _NOT_MODIFIED)
            policy = _measure_seconds(services.server, server_pid, unchanged_request, _NOT_MODIFIED)
            rows.append((bare_seconds, policy, _measure_seconds(services.server, server_pid, forged_request, _REFUSED)))
    unit = report_path.open_seconds()
    bare_seconds, policy, refusal = (median(seconds) for seconds in zip(*rows, strict=True))
    return {
        "policy that a device has already": {
            "server": policy / unit,
            "bare_starlette": bare_seconds / unit,
            "share_of_bare": median(row[0] / row[1] for row in rows),
        },
        "upload refused by its headers": {"server": refusal / unit, "a_second_of_one_core": 1 / refusal},
    }


def _build_forged_upload() -> bytes:
    """Build an upload request with a forged signature."""
    signature = f"{'0' * 16}.1.{len(_BODY)}.{'0' * 64}.{'0' * 128}"
    head = f"POST /reports HTTP/1.1\r\nHost: bench\r\n{UPLOAD.header}: {signature}\r\nContent-Length: {len(_BODY)}\r\n"
    return head.encode() + b"\r\n" + _BODY


def _measure_seconds(url: str, pid: int, request: bytes, status: int) -> float:
    """Measure the processor time of one response, in seconds."""
    before = report_path.cpu_seconds(pid)
    statuses = report_path.send_all(url, [request] * _N_REQUESTS)
    if set(statuses) != {status}:
        raise Unavailable(f"the answers were {dict(statuses)}", remedy="see the services' log above")
    return (report_path.cpu_seconds(pid) - before) / _N_REQUESTS


def main() -> None:
    """Run the bare server on the port of its settings."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def unchanged(request: Request) -> Response:
        return Response(status_code=304, headers={"ETag": request.headers.get("if-none-match", "")})

    async def ready(_request: Request) -> Response:
        return Response()

    app = Starlette(routes=[Route("/experiments/{name}/policy", unchanged), Route("/readyz", ready)])
    options: dict[str, Any] = {"loop": "uvloop", "http": "httptools", "access_log": False, "log_level": "error"}
    uvicorn.run(app, port=int(os.environ["PRIVATEER_PORT"]), **options)


_UPLOAD_SIZE: Final = 100
"""Reports per upload."""
_MAX_SERVERS: Final = 2
_STORE_KEY_BYTES: Final = 32


class _Servers(NamedTuple):
    """The running replicas: public listeners, the private listener of the first replica, and processes by number."""

    urls: list[str]
    admin: str
    token: str
    sender_key: Path
    processes: Processes


def bench_replicas(n_participants: int, database: str, journal: str) -> dict[str, dict[str, float]]:
    """Measure the throughput of one server, and of two servers that share two databases.

    Uploads have a hundred reports. Every server has one core and one process that opens. The load generator, and
    PostgreSQL if it is on this machine, may use all cores. Figures are by number of servers: reports a second of wall
    time, their processor time of a report in multiples of one open, and the people counted. ``gain`` is the ratio of
    reports a second of two servers to one.

    n_participants: number of participants in each run.
    database, journal: addresses of PostgreSQL databases without other users.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _MAX_SERVERS:
        raise SpecError("two servers need two cores", field="--databases", remedy="use a larger machine")
    unit, figures = report_path.open_seconds(), dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder:
        settings = _create_settings(Path(folder), database, journal)
        for count in range(1, _MAX_SERVERS + 1):
            with _run_servers(Path(folder), settings, cores[:count]) as servers:
                figures[f"{count} on PostgreSQL"] = _measure_run(servers, n_participants, unit)
    single_rate, double_rate = (row["reports_a_second"] for row in figures.values())
    return figures | {"two beside one": {"gain": double_rate / single_rate}}


def _create_settings(folder: Path, database: str, journal: str) -> dict[str, str]:
    """Create the keys that the servers share, and return the settings."""
    load_or_create_key(folder / "identity.key", "--data")
    publish_key(load_or_create_key(folder / "sender.key", "--data"), folder / "senders" / "sender.pub")
    (folder / "store.key").write_bytes(secrets.token_bytes(_STORE_KEY_BYTES))
    return {
        "PRIVATEER_DATABASE": database,
        "PRIVATEER_JOURNAL_DATABASE": journal,
        "PRIVATEER_STORE_KEY_FILE": str(folder / "store.key"),
        "PRIVATEER_PUBLICATION_KEY": str(folder / "identity.key"),
        "PRIVATEER_SENDER_KEYS": str(folder / "senders"),
        "PRIVATEER_ADMIN_TOKEN": secrets.token_urlsafe(24),
        "PRIVATEER_DECRYPT_WORKERS": "1",
    }


@contextmanager
def _run_servers(folder: Path, settings: dict[str, str], cores: list[int]) -> Iterator[_Servers]:
    """Start a server on each core."""
    processes, ports = Processes(quiet=True), [(free_port(), free_port()) for _ in cores]
    urls, all_cores = [f"http://127.0.0.1:{port}" for port, _ in ports], os.sched_getaffinity(0)
    try:
        for number, (core, url, (_, admin)) in enumerate(zip(cores, urls, ports, strict=True)):
            os.sched_setaffinity(0, {core})  # a process begins where the one that starts it may be
            command = ("privateer_server.app", settings | {"PRIVATEER_ADMIN_PORT": str(admin)}, url)
            processes.start(str(number), command)
            os.sched_setaffinity(0, all_cores)
            processes.wait(str(number))
        private = f"http://127.0.0.1:{ports[0][1]}"
        yield _Servers(urls, private, settings["PRIVATEER_ADMIN_TOKEN"], folder / "sender.key", processes)
    finally:
        os.sched_setaffinity(0, all_cores)
        processes.stop()


def _measure_run(servers: _Servers, n_participants: int, unit: float) -> dict[str, float]:
    """Report people to new experiments, and measure wall and processor time; refuse if not all are counted."""
    n_each, first_url = n_participants // report_path.N_EXPERIMENTS, servers.urls[0]
    names = [f"bench-{secrets.token_hex(4)}" for _ in range(report_path.N_EXPERIMENTS)]
    for name in names:
        create_experiment(servers.admin, report_path.bench_spec(name, "server", n_each), servers.token)
    key = load_or_create_key(servers.sender_key, "--data")
    rounds = [
        report_path.seal_round(report_path.fetch_policy(first_url, name), name, n_each, _UPLOAD_SIZE, key)
        for name in names
    ]
    pids = [servers.processes.pid(str(number)) for number in range(len(servers.urls))]
    cpu_before, started = sum(map(report_path.cpu_seconds, pids)), time.perf_counter()
    report_path.upload_and_await_policy(first_url, servers.urls, names, rounds)
    wall, cpu_time = time.perf_counter() - started, sum(map(report_path.cpu_seconds, pids)) - cpu_before
    counted = sum(httpx.get(f"{first_url}/experiments/{name}").raise_for_status().json()["accepted"] for name in names)
    if counted != n_each * report_path.N_EXPERIMENTS:
        detail = f"{counted} of {n_each * report_path.N_EXPERIMENTS} people are counted"
        raise Unavailable(detail, remedy="see the servers' log above")
    return {"reports_a_second": n_participants / wall, "servers": cpu_time / n_participants / unit, "counted": counted}
