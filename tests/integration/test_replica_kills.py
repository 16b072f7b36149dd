"""Two server processes share their data and are killed again and again: nothing is lost, doubled or released twice."""

import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.publication import decode_publication, digest
from privateer_lab.services.processes import Processes, free_port
from privateer_server.data import open_data
from privateer_server.rounds.open_round import add_stored_sums, restore_without_sums
from tests.support.nights import KILLS
from tests.support.replicas import Shared
from tests.support.sealing import body_of, plain_reports, seal, sealed_reports
from tests.support.senders import TRUSTED, Signing
from tests.support.servers import ADMIN, MSGPACK, TOKEN
from tests.support.specs import tables

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
BODY = 5
_ENOUGH = 160
"""Bodies that are sent at least, if there are so many."""
SERVERS, DATABASE = ("one", "two"), "database"
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}


class Pair:
    """Two processes; a client's requests go to each in turn, as behind a balancer, until a process decides.

    Each may have an environment of its own beside what both have.
    """

    def __init__(self, shared: Shared, deaths: float, env: Mapping[str, Mapping[str, str]] | None = None) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        environment = {
            "PRIVATEER_DATABASE": shared.database,
            "PRIVATEER_JOURNAL_DATABASE": shared.journal,
            "PRIVATEER_STORE_KEY_FILE": str(shared.key_file),
            "PRIVATEER_PUBLICATION_KEY": str(shared.identity),
            "PRIVATEER_ADMIN_TOKEN": TOKEN,
            "PRIVATEER_SENDER_KEYS": str(TRUSTED[0]),
            "PRIVATEER_DECRYPT_WORKERS": "0",
            "PRIVATEER_TEST_DEATHS": str(deaths),
            "PYTHONPATH": path,
        }
        self.processes, self.deaths, self._turn = Processes(quiet=True), 0, 0
        self.public = {name: f"http://127.0.0.1:{free_port()}" for name in ("one", "two")}
        self.private = {name: f"http://127.0.0.1:{free_port()}" for name in self.public}
        for name, url in self.public.items():
            admin = {"PRIVATEER_ADMIN_PORT": self.private[name].rpartition(":")[2]}
            further = (env or {}).get(name, {})
            self.processes.start(name, ("tests.support.killed_server", environment | admin | dict(further), url))
        for name in self.public:
            self.processes.wait(name)

    def ask(self, client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer of the first server that decides."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            self._turn += 1
            url = list(self.public.values())[self._turn % 2]
            with suppress(httpx.TransportError):
                answer = client.request(method, f"{url}{path}", **options)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return answer
            time.sleep(0.02)
        raise TimeoutError("no server answers")

    def kill(self, name: str) -> None:
        """Kill a server and start it again, while the other server is up."""
        self.processes.kill(name)
        self.processes.start(name)
        self.processes.wait(name)

    @contextmanager
    def revived(self, over: threading.Event) -> Iterator[None]:
        """Start processes again that have killed themselves."""

        def look() -> None:
            while not over.wait(0.05):
                for name in self.public:
                    if self.processes._running[name].poll() is not None:
                        self.deaths += 1
                        self.processes.start(name)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


@contextmanager
def pair(shared: Shared, changes: dict[str, Any], deaths: float = 0.0) -> Iterator[tuple[Pair, httpx.Client]]:
    at = Pair(shared, deaths)
    try:
        with httpx.Client(auth=Signing(), timeout=30) as client:
            create(at, client, changes)
            yield at, client
    finally:
        for name in at.public:
            at.processes.kill(name)


def create(at: Pair, client: httpx.Client, changes: dict[str, Any]) -> None:
    """Create the experiment; a server that kills itself meanwhile is started again, and asked again."""
    while True:
        with suppress(httpx.TransportError):
            url = f"{at.private['one']}/experiments"
            client.post(url, json=tables(changes), headers=ADMIN).raise_for_status()
            return
        at.kill("one")


def publication(at: Pair, client: httpx.Client) -> bytes:
    answer = at.ask(client, "GET", "/experiments/test/policy", headers=MSGPACK)
    assert answer.status_code == 200
    return answer.content


def send(at: Pair, client: httpx.Client, body: bytes) -> tuple[int, int]:
    """How many reports of a body count, and how many do not; what was counted before an answer was lost counts."""
    answer = at.ask(client, "POST", "/reports", content=body).json()
    refused = answer["refused"]
    return answer["accepted"] + refused.get("duplicate-report", 0), refused.get("round-closed", 0)


@pytest.mark.parametrize(
    ("people", "kills", "victims"),
    [
        (800, 3, SERVERS),
        pytest.param(200 * KILLS, KILLS, SERVERS, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
        pytest.param(4_000, 10, (DATABASE,), marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_kills_in_the_middle_of_a_round_lose_and_double_nothing(postgres, tmp_path, people, kills, victims):
    """Every report is unique, and the sums are compared with those of all reports, to the last bit."""
    shared, rng, killed = Shared.make(postgres, tmp_path), random.Random(3), 0
    with pair(shared, {**CENTRAL, "experiment.round_size": 50_000, "experiment.horizon": 50_000}) as (at, client):
        first = publication(at, client)
        plain = plain_reports(first, people)
        sealed = [seal(first, os.urandom(16) + message) for message in plain]
        waiting = list(range(0, people, BODY))
        starts: list[int] = []
        counted: list[int] = []
        taking = threading.Lock()

        def upload() -> None:
            with httpx.Client(auth=Signing(), timeout=30) as client:
                while True:
                    while len(starts) * BODY * kills > killed * people:  # a busy machine kills slowly
                        time.sleep(0.05)
                    with taking:
                        if not waiting or (killed >= kills and len(starts) >= _ENOUGH):
                            return
                        start = waiting.pop()
                        starts.append(start)
                    counted.append(send(at, client, body_of(first, sealed[start : start + BODY]))[0])
                    time.sleep(0.4)

        senders = [threading.Thread(target=upload) for _ in range(3)]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            time.sleep(rng.uniform(0.1, 0.6))
            if waiting:
                victim = rng.choice(victims)
                if victim == DATABASE:
                    postgres.restart()
                else:
                    at.kill(victim)
                killed += 1
        print(f"{killed} kills, {len(starts) * BODY} reports")
        assert (sum(counted), len(counted)) == (len(starts) * BODY, len(starts))
        assert killed >= kills
        # Whatever is sent again is counted already.
        assert send(at, client, body_of(first, sealed[starts[0] : starts[0] + BODY])) == (BODY, 0)
    data = open_data(shared.settings())
    stored = data.store.experiment("test")
    blank = restore_without_sums(stored.current)
    whole = add_stored_sums(blank, data.store.sums("test", 1), data.keys.find_decryptor(blank.round.public_key))
    data.close()
    messages = [message for start in starts for message in plain[start : start + BODY]]
    expected = blank.step.policy.make_analyzer(blank.step.policy).tally(blank.mechanism, b"".join(messages))
    assert stored.current.received == len(messages) == whole.total.reports == expected.reports
    assert (whole.total.cells == expected.cells).all()
    assert (whole.total.counts == expected.counts).all()
    assert len(stored.parts) > 2


@pytest.mark.parametrize(
    ("min_rounds", "deaths"), [(25, 4), pytest.param(25, KILLS, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_deaths_while_rounds_close_release_every_round_once(postgres, tmp_path, min_rounds, deaths):
    """Servers die before and after each step of a closing; the other server goes on, and both publish the same."""
    shared, size = Shared.make(postgres, tmp_path), 10
    changes = {**CENTRAL, "experiment.round_size": size, "experiment.horizon": 50_000}
    seen_digests: dict[int, set[bytes]] = defaultdict(set)
    accepted = n_late = 0
    with pair(shared, changes, deaths=0.06) as (at, client), at.revived(threading.Event()):
        version = 0
        while version <= min_rounds or at.deaths < deaths:
            current = publication(at, client)
            version = decode_publication(current).round.version
            seen_digests[version].add(digest(current))
            sealed = sealed_reports(current, size)
            for start in range(0, size, BODY):
                counted, late = send(at, client, body_of(current, sealed[start : start + BODY]))
                assert counted + late == BODY
                accepted, n_late = accepted + counted, n_late + late
        for earlier in range(1, version + 1):
            for _ in range(2):
                answer = at.ask(client, "GET", f"/experiments/test/policy/{earlier}", headers=MSGPACK)
                seen_digests[earlier].add(digest(answer.content))
        history = at.ask(client, "GET", "/experiments/test/history").json()["rounds"]
    print(f"{at.deaths} deaths, {version} rounds")
    assert at.deaths >= deaths
    assert {earlier: len(digests) for earlier, digests in seen_digests.items()} == dict.fromkeys(seen_digests, 1)
    assert [row["received"] for row in history[:-1]] == [size] * (len(history) - 1)
    total = sum(row["received"] for row in history)
    # Who is cut off between storing and answer may find the round closed when asking again.
    assert accepted <= total <= accepted + n_late
    data = open_data(shared.settings())
    records = data.store.experiments()
    data.close()
    assert [row["version"] for row in history] == list(range(1, records[0].current.version + 1))
