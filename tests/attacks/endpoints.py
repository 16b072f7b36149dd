"""Running services, honest people, and attackers that hold sockets."""

import http.client
import math
import os
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from privateer_lab.services.processes import Services, free_port, run_services
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK
from tests.support.specs import SHUFFLE, make_spec

LOCAL = {"experiment.round_size": 20_000, "experiment.horizon": 100_000}
SHUFFLED = {**SHUFFLE, "experiment.horizon": 10_000, "experiment.round_size": 2000, "privacy.min_batch": 1000}
MAX_SLOWDOWN = 3.0
"""Times the quiet median answer that an honest person may wait under attack."""
TIMEOUT_SECONDS = 10.0
"""After which an honest person gives up."""


@dataclass
class Endpoint:
    """One service under attack.

    Attributes
    ----------
    path
        Where reports go.
    publication
        Of the round that is open.
    waits
        Seconds that honest people waited, each.
    """

    url: str
    admin: str
    path: str
    pid: int
    publication: bytes
    waits: list[float] = field(default_factory=list)
    _reports: list[bytes] = field(default_factory=list)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        at = urlsplit(self.url)
        return socket.create_connection((at.hostname, at.port), TIMEOUT_SECONDS, (source, 0))

    def person(self) -> None:
        """One honest person connects, reports and waits for the answer."""
        body, at = body_of(self.publication, [self._reports.pop()]), urlsplit(self.url)
        started = time.perf_counter()
        connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("POST", self.path, body)
            assert connection.getresponse().status == 202
        finally:
            connection.close()
        self.waits.append(time.perf_counter() - started)

    def median(self, people: int) -> float:
        """The median wait of honest people, one after another."""
        self._reports = sealed_reports(self.publication, people, seed=len(self.waits))
        self.waits.clear()
        for _ in range(people):
            self.person()
        return statistics.median(self.waits)

    def memory(self, peak: bool = True) -> int:
        """Bytes of the process that are, or at most were, in memory."""
        name = "VmHWM" if peak else "VmRSS"
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    def forget_peak(self) -> None:
        """The most memory is counted from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@contextmanager
def _few_open_files() -> Iterator[None]:
    """What starts in the block may have 1,024 files open unless it asks for more, as on most machines."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def services(folder: Path) -> Iterator[Services]:
    with _few_open_files():
        running = run_services(folder, free_port(), free_port())
        at = running.__enter__()
    try:
        yield at
    finally:
        running.__exit__(None, None, None)


@contextmanager
def endpoint(folder: Path, name: str) -> Iterator[Endpoint]:
    """The server, or the shuffler, with an experiment whose reports come to it."""
    spec = make_spec(LOCAL if name == "server" else SHUFFLED)
    with services(folder) as at:
        body, headers = spec.model_dump(mode="json", exclude_none=True), {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=30).status_code == 201
        publication = httpx.get(f"{at.server}/experiments/test/policy", headers=MSGPACK).content
        url = at.server if name == "server" else at.shuffler
        path = "/reports" if name == "server" else "/experiments/test/reports"
        yield Endpoint(url, at.admin, path, at.processes.pid(name), publication)


def measure_slowdown(endpoint: Endpoint, attack: Callable[[], Callable[[], object]], people: int = 100) -> float:
    """How many times longer honest people wait while ``attack`` goes on, which returns what ends it.

    An attack does what it does every time, and a busy machine does not: the best of three rounds counts, and quiet is
    the slower of before and after.
    """
    endpoint.median(10)  # the first people find everything cold
    best = math.inf
    for _ in range(3):
        best = min(best, _slower(endpoint, attack, people))
        if best < MAX_SLOWDOWN:
            break
    return best


def _slower(endpoint: Endpoint, attack: Callable[[], Callable[[], object]], people: int) -> float:
    before = endpoint.median(people)
    end = attack()
    try:
        during = endpoint.median(people)
    finally:
        end()
    return during / max(before, endpoint.median(people))


class Repeater(threading.Thread):
    """Repeats an action, at most ``per_second`` times a second, until it is told to end."""

    def __init__(self, act: Callable[[], None], per_second: float) -> None:
        super().__init__(daemon=True)
        self._act, self._pause = act, 1 / per_second
        self._ended = threading.Event()
        self.n_done = 0
        self.start()

    def run(self) -> None:
        while not self._ended.wait(self._pause):
            self._act()
            self.n_done += 1

    def end(self) -> None:
        self._ended.set()
        self.join(2 * TIMEOUT_SECONDS)


def junk(endpoint: Endpoint, reports: int) -> bytes:
    """An upload of what looks like sealed reports of the round."""
    return body_of(endpoint.publication, [os.urandom(70) for _ in range(reports)])
