"""Benchmark of the report path; reports are sealed beforehand, so that client and services are measured apart."""

import asyncio
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httpx
import numpy as np
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_client.participation import Participation
from privateer_core.errors import Unavailable
from privateer_core.privacy.trust import TRUST, Crowd, NoiseOrigin
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.keys import load_or_create_key
from privateer_core.wire.publication import MEDIA_TYPE, Envelope, encode_envelope
from privateer_lab.load.driver import LIMITS
from privateer_lab.services.demo import demo_spec
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment

_PROC: Final = Path("/proc")
_USER_TICKS: Final = 11
"""Index of a process's ticks in user mode after its name; kernel ticks follow."""
_N_OPENS: Final = 20_000
_REPORT_BYTES: Final = 22
"""Bytes of a sealed report's content: 16 of id, 6 of slot and symbol."""


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its current children, in seconds."""
    stats = ((_PROC / str(process) / "stat").read_text() for process in (pid, *_find_descendants(pid)))
    ticks = (stat.rpartition(")")[2].split()[_USER_TICKS : _USER_TICKS + 2] for stat in stats)
    return sum(sum(map(int, process_ticks)) for process_ticks in ticks) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> list[float]:
    """Return the resident memory in MiB of a process, and of each of its children."""
    statuses = ((_PROC / str(process) / "status").read_text() for process in (pid, *_find_descendants(pid)))
    return [int(status.partition("VmRSS:")[2].split()[0]) / 1024 for status in statuses]


def _find_descendants(pid: int) -> list[int]:
    tasks = (_PROC / str(pid) / "task").glob("*/children")
    direct = [int(child) for task in tasks for child in task.read_text().split()]
    return [descendant for child in direct for descendant in (child, *_find_descendants(child))]


def open_seconds() -> float:
    """Measure the processor time of one open (HPKE), in seconds."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.generate()
    sealed = suite.encrypt(bytes(_REPORT_BYTES), key.public_key(), info=b"bench")
    started = time.process_time()
    for _ in range(_N_OPENS):
        suite.decrypt(sealed, key, info=b"bench")
    return (time.process_time() - started) / _N_OPENS


_N_CONNECTIONS: Final = 256
_END_OF_HEADERS: Final = b"\r\n\r\n"
_LENGTH_HEADER: Final = b"\r\ncontent-length:"
_STATUS: Final = slice(9, 12)
"""Position of the status in ``HTTP/1.1 200 OK``."""


class Uploads(NamedTuple):
    """Sealed reports of one round's participants."""

    bodies: list[bytes]  # the bodies of their uploads
    requests: list[bytes]  # whole HTTP requests with these bodies
    seconds: float  # processor time to decide, randomize and seal all reports


def bench_spec(name: str, endpoint: str, n_participants: int, rounds: int = 2) -> Spec:
    """Build the spec of an experiment with rounds of ``n_participants`` whose devices report to ``endpoint``."""
    spec = demo_spec(rounds * n_participants, name=name, round_size=n_participants, min_round_fraction=0.0)
    trust = next(model for model in TRUST.values() if model.endpoint == endpoint and model.noise is NoiseOrigin.DEVICES)
    changes = {"model": trust.name, "delta": spec.privacy.delta if trust.crowd is Crowd.BATCH else 0.0}
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update=changes)})


def seal_round(publication: bytes, name: str, n_participants: int, batch: int, key: Ed25519PrivateKey) -> Uploads:
    """Seal the reports of a round's participants, with ``batch`` reports in each upload."""
    participation = Participation(publication, name, LIMITS)
    started = time.process_time()
    rng, coins = np.random.default_rng(1), participation.draw_coins(n_participants)
    contexts = rng.random((n_participants, len(participation.spec.features)))
    decisions = participation.decide(contexts, coins)
    reports = participation.make_reports(contexts, coins, decisions, rng.random(n_participants))
    seconds = time.process_time() - started
    path = "/reports" if participation.round.endpoint == "server" else f"/experiments/{name}/reports"
    bodies = [
        encode_envelope(Envelope(participation.header, b"".join(reports[start : start + batch])))
        for start in range(0, n_participants, batch)
    ]
    requests = [_build_request(path, body, key if batch > 1 else None) for body in bodies]
    return Uploads(bodies, requests, seconds)


def _build_request(path: str, body: bytes, key: Ed25519PrivateKey | None) -> bytes:
    """Build the bytes of an upload over HTTP, signed if there is a key."""
    lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}"]
    if key is not None:
        lines.append(f"{UPLOAD.header}: {UPLOAD.sign(body, key)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection(asyncio.Protocol):
    """A connection that sends each request after the response to the request before it."""

    def __init__(self, requests: deque[bytes], statuses: Counter[int], ended: asyncio.Future[None]) -> None:
        self._requests, self._statuses, self._ended = requests, statuses, ended
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Count a complete answer's status, and send the next request."""
        self._answer += data
        head, separator, body = self._answer.partition(_END_OF_HEADERS)
        length = head.lower().partition(_LENGTH_HEADER)[2].partition(b"\r\n")[0]
        if not separator or len(body) < int(length or 0):
            return
        self._statuses[int(head[_STATUS])] += 1
        self._answer = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(error or ConnectionResetError())

    def _send(self) -> None:
        """Send the next request, or close the connection if none is left."""
        if self._requests:
            self._transport.write(self._requests.popleft())
        else:
            self._ended.set_result(None)
            self._transport.close()


def send_all(url: str | Sequence[str], requests: list[bytes], connections: int = _N_CONNECTIONS) -> Counter[int]:
    """Send whole HTTP requests to one or several services; return the number of responses by status.

    All services have the same number of connections, and faster services get more requests.
    """
    urls = [url] if isinstance(url, str) else url
    return uvloop.run(_send_all(urls, deque(requests), min(connections, len(requests))))


async def _send_all(urls: Sequence[str], requests: deque[bytes], connections: int) -> Counter[int]:
    """Send all requests over concurrent connections, and count the answers' statuses."""
    loop, statuses = asyncio.get_running_loop(), Counter[int]()
    addresses = [(urlsplit(url).hostname or "", urlsplit(url).port or 80) for url in urls]
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for address, ended in zip(cycle(addresses), ends):
        await loop.create_connection(partial(_Connection, requests, statuses, ended), *address)
    await asyncio.gather(*ends)
    return statuses


N_EXPERIMENTS: Final = 4
_N_OVERLAPPING: Final = 2
"""Number of experiments whose participants report at the same time."""
_TIMEOUT_SECONDS: Final = 120.0
_SERVICES: Final = ("shuffler", "server")
_ACCEPTED: Final = 202


class _RunSeconds(NamedTuple):
    """Wall time, and the processor time of each service and of this process, in seconds."""

    wall: float
    services: dict[str, float]
    generator: float


def bench_path(n_participants: int) -> dict[str, dict[str, float]]:
    """Measure the processor time of reports for each kind of upload, with reports that are sealed beforehand.

    Several experiments are open at once, as on a server with more than one team, and their rounds fill in turn. A
    run ends when every experiment has learned from its round.

    n_participants: number of participants in each run.

    Figures are by run: the processor time of a report at the client, the shuffler and the server, in multiples of one
    open on the same machine. ``end_to_end`` is the reports a second, as a share of the opens that one core does in a
    second.
    """
    first_open_seconds = open_seconds()
    runs = {
        "shuffled, 100 an upload": _measure_run("shuffler", n_participants, 100),
        "shuffled, one an upload": _measure_run("shuffler", n_participants, 1),
        "to the server, 100 an upload": _measure_run("server", n_participants, 100),
        "to the server, one an upload": _measure_run("server", n_participants, 1),
    }
    unit = (first_open_seconds + open_seconds()) / 2
    return {"one open": {"microseconds": unit * 1e6}, **{name: in_opens(unit) for name, in_opens in runs.items()}}


def _measure_run(endpoint: str, n_participants: int, batch: int) -> Callable[[float], dict[str, float]]:
    """Measure a kind of upload; return a function from the seconds of an open to the figures."""
    n_each = n_participants // N_EXPERIMENTS
    names = [f"bench-{number}" for number in range(N_EXPERIMENTS)]
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        run_services(Path(folder), free_port(), free_port(), quiet=True) as services,
    ):
        for name in names:
            create_experiment(services.admin, bench_spec(name, endpoint, n_each), services.token)
        key = load_or_create_key(services.sender_key, "--data")
        rounds = [seal_round(fetch_policy(services.server, name), name, n_each, batch, key) for name in names]
        url = services.shuffler if endpoint == "shuffler" else services.server
        times = _measure_work(services, lambda: upload_and_await_policy(services.server, url, names, rounds))
    sealing = sum(sealed_round.seconds for sealed_round in rounds)

    def in_opens(unit: float) -> dict[str, float]:
        seconds = {"client": sealing} | times.services | {"generator": times.generator}
        end_to_end = {"end_to_end": n_participants * unit / times.wall}
        return {role: cpu / n_participants / unit for role, cpu in seconds.items()} | end_to_end

    return in_opens


def fetch_policy(server: str, name: str) -> bytes:
    """Fetch the current publication of an experiment."""
    page = f"{server}/experiments/{name}/policy"
    return httpx.get(page, headers={"Accept": MEDIA_TYPE}).raise_for_status().content


def _measure_work(services: Services, work: Callable[[], None]) -> _RunSeconds:
    """Measure work in wall time, and in processor time of each service and of this process."""

    def read_seconds() -> dict[str, float]:
        return {name: cpu_seconds(services.processes.pid(name)) for name in _SERVICES}

    start, own_seconds, started = read_seconds(), time.process_time(), time.perf_counter()
    work()
    wall, own_seconds = time.perf_counter() - started, time.process_time() - own_seconds
    return _RunSeconds(wall, {name: seconds - start[name] for name, seconds in read_seconds().items()}, own_seconds)


def upload_and_await_policy(
    server_url: str,
    upload_urls: str | Sequence[str],
    experiment_names: list[str],
    rounds: list[Uploads],
    awaited_version: int = 2,
) -> None:
    """Send all uploads to the addresses, and wait for ``awaited_version``, which is learned from these reports."""
    statuses = send_all(upload_urls, _interleave_requests([sealed_round.requests for sealed_round in rounds]))
    if set(statuses) != {_ACCEPTED}:
        raise Unavailable(f"the services answered {dict(statuses)}", remedy="see their log above")
    with httpx.Client() as client:  # a client of its own for each question would cost as much as hundreds of reports
        for name in experiment_names:
            deadline, page = time.monotonic() + _TIMEOUT_SECONDS, f"{server_url}/experiments/{name}"
            while client.get(page).raise_for_status().json()["version"] < awaited_version:
                if time.monotonic() > deadline:
                    raise Unavailable(f"{name} did not learn from its round", remedy="see the services' log above")
                time.sleep(0.02)


def _interleave_requests(requests: list[list[bytes]]) -> list[bytes]:
    """Return all requests, interleaved so that the experiments' rounds fill one after another."""
    timed_requests = [
        (number + turn / len(experiment_requests) * _N_OVERLAPPING, request)
        for number, experiment_requests in enumerate(requests)
        for turn, request in enumerate(experiment_requests)
    ]
    return [request for _, request in sorted(timed_requests, key=lambda pair: pair[0])]
