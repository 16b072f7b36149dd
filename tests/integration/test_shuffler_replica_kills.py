"""Shuffler processes share their data and are killed again and again: an acknowledged report leaves once.

The server only keeps what it gets, so that every message that people sent is looked for in the batches.
"""

import os
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.batch import decode_batch
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import Header, split_bytes
from privateer_lab.services.processes import Processes, free_port
from tests.support.nights import KILLS
from tests.support.postgres import Cluster
from tests.support.senders import TRUSTED, Signing
from tests.support.shufflers import SharedShufflers
from tests.unit.shuffler.fake_server import SIZE, FakeServer, body_of, listening
from tests.unit.shuffler.helpers import sealed_reports

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
BATCH = 40
_SENDERS = 3
_PATIENCE = 120


class Replicas:
    """Two processes; a client's uploads go to each in turn, as behind a balancer, until a process decides."""

    def __init__(self, shared: SharedShufflers, server: str, deaths: float) -> None:
        settings = shared.settings
        environment = {
            "PRIVATEER_SERVER_URL": server,
            "PRIVATEER_DATABASE": settings.database,
            "PRIVATEER_STORE_KEY_FILE": str(settings.store_key_file),
            "PRIVATEER_SIGNING_KEY": str(settings.signing_key),
            "PRIVATEER_SENDER_KEYS": str(TRUSTED[0]),
            "PRIVATEER_MIN_BATCH": "2",
            "PRIVATEER_TEST_DEATHS": str(deaths),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        self.processes, self.deaths, self._turn = Processes(quiet=True), 0, 0
        self.public = {name: f"http://127.0.0.1:{free_port()}" for name in ("one", "two")}
        for name, url in self.public.items():
            admin = {"PRIVATEER_ADMIN_PORT": str(free_port())}
            self.processes.start(name, ("tests.support.killed_shuffler", environment | admin, url))
        for name in self.public:
            self.processes.wait(name)

    def ask(self, client: httpx.Client, page: str, **options: Any) -> httpx.Response:
        """The answer of the first replica that decides; what is refused for want of room is decided later."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            self._turn += 1
            url = list(self.public.values())[self._turn % 2]
            with suppress(httpx.TransportError):
                answer = client.post(f"{url}{page}", **options)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return answer
            time.sleep(0.02)
        raise TimeoutError("no shuffler decides")

    def harass(self, rng: random.Random, over: threading.Event) -> None:
        """Kill a process, soon after it is ready and once in four times while it starts; restart dead processes."""
        while not over.wait(rng.uniform(0.0, 0.6)):
            name = rng.choice(list(self.public))
            for each in self.public:
                if each == name or self.processes._running[each].poll() is not None:
                    self.processes.kill(each)
                    self.processes.start(each)
                    self.deaths += 1
            if rng.random() < 0.75:
                with suppress(Exception):  # it may kill itself as soon as it is there
                    self.processes.wait(name)

    @contextmanager
    def harassed(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self.harass, args=(random.Random(11), over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for name in self.public:
                if self.processes._running[name].poll() is not None:
                    self.processes.start(name)
                self.processes.wait(name)


class People:
    """All participants who report, with a unique message each.

    Attributes
    ----------
    acknowledged, undecided
        Messages that a replica said it had, and those of a round that was over when somebody answered at last.
    """

    def __init__(self, at: Replicas, server: FakeServer) -> None:
        self._at, self._server = at, server
        self.acknowledged: set[bytes] = set()
        self.undecided: set[bytes] = set()
        self.version = 1

    def report(self, client: httpx.Client) -> None:
        header, message = self._server.header(), sealed_reports(1)[0]
        answer = self._send(client, header, message)
        slug = "" if answer.is_success else read_slug(answer.content)
        assert answer.is_success or slug in ("duplicate-report", "round-closed"), answer.text
        (self.undecided if slug == "round-closed" else self.acknowledged).add(message)

    def _send(self, client: httpx.Client, header: Header, message: bytes) -> httpx.Response:
        return self._at.ask(client, "/experiments/spring/reports", content=body_of(header, [message]))

    def go_on(self, is_over: Any) -> None:
        """Report until it is enough; the server publishes another version whenever it has a batch."""
        failures: list[BaseException] = []

        def one() -> None:
            try:
                with httpx.Client(auth=Signing(), timeout=30) as client:
                    while not is_over() and not failures:
                        self.report(client)
            except BaseException as error:
                failures.append(error)

        senders = [threading.Thread(target=one) for _ in range(_SENDERS)]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            time.sleep(0.02)
            self.follow()
        if failures:
            raise failures[0]

    def follow(self) -> None:
        if ("spring", self.version) in self._server.delivered:
            self.version += 1
            self._server.publish(version=self.version, batch=BATCH)


@pytest.mark.parametrize(
    ("deaths", "rounds"), [(4, 4), pytest.param(KILLS, KILLS, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_an_acknowledged_report_leaves_once(postgres: Cluster, tmp_path: Path, deaths: int, rounds: int) -> None:
    shared = SharedShufflers.make(postgres, tmp_path)
    server = shared.server
    server.publish(batch=BATCH)
    with listening(server) as url:
        at = Replicas(shared, url, deaths=0.03)
        try:
            people = People(at, server)
            with at.harassed():
                people.go_on(lambda: at.deaths >= deaths and people.version > rounds)
            last = people.version
            people.go_on(lambda: people.version > last)  # whoever waits in the open round leaves with it
        finally:
            for name in at.public:
                at.processes.kill(name)
    delivered = [
        message for body in server.delivered.values() for message in split_bytes(decode_batch(body).sealed, SIZE)
    ]
    print(f"{at.deaths} deaths, {len(server.delivered)} batches, {len(server.attempts)} deliveries")
    print(f"{len(people.acknowledged)} acknowledged, {len(people.undecided)} undecided")
    assert at.deaths >= deaths
    assert max(Counter(delivered).values()) == 1
    assert len(people.acknowledged - set(delivered)) == 0, "an acknowledged message was never delivered"
    assert set(delivered) <= people.acknowledged | people.undecided
    assert {len(decode_batch(body).sealed) for body in server.delivered.values()} == {BATCH * SIZE}
    bodies = defaultdict(set)
    for body in server.attempts:
        bodies[decode_batch(body).header.version].add(body)
    assert {version: len(distinct) for version, distinct in bodies.items() if len(distinct) > 1} == {}
