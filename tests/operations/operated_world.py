"""Three services, the people who report to them, and an operator who looks at everything."""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from privateer_core.wire.keys import load_or_create_key
from privateer_lab.services.processes import IssuerProcess, free_port, service_settings
from tests.operations.alert_history import Scrape
from tests.operations.disk import Disk
from tests.operations.services import Role, ServiceProcess, examine
from tests.operations.traffic import Sender, Stop, Totals
from tests.support.postgres import Cluster
from tests.support.senders import TRUSTED
from tests.support.servers import SHUFFLED, TOKEN
from tests.support.specs import tables

PLAIN, MIXED = "plain", "mixed"
BATCH = 100
_PLAIN = {
    "experiment.name": PLAIN,
    "experiment.round_size": 50_000,
    "experiment.horizon": 50_000,
    "privacy.model": "central",
    "privacy.delta": 1e-6,
}
_MIXED = SHUFFLED | {"experiment.name": MIXED, "experiment.horizon": 50_000, "privacy.min_batch": BATCH}
_LOOK_SECONDS = 1.0
_PATIENCE = 90.0


class OperatedWorld:
    """Services, people and what became of their reports.

    Attributes
    ----------
    folder
        Where everything is.
    services
        The processes, by role.
    cluster
        The PostgreSQL with the data of server and shuffler; None: they have folders.
    disks
        Those of services that have their own.
    """

    def __init__(self, folder: Path, cluster: Cluster | None, disks: set[Role], clocks: set[Role]) -> None:
        self.folder, self.cluster, self._http = folder, cluster, httpx.Client(timeout=60, trust_env=False)
        if cluster:
            cluster.folder.chmod(0o711)  # the services find its socket, and are not root
        self.disks = {role: Disk(folder / role) for role in disks}
        ports = free_port(), free_port(), free_port(), free_port()
        issuer = IssuerProcess(f"{PLAIN},{MIXED}", free_port())
        configs = service_settings(folder, ports, TOKEN)
        for name, port in zip(("server", "shuffler"), ports, strict=False):
            configs[name] |= issuer.token_settings(folder, f"http://127.0.0.1:{port}")
        configs["server"]["PRIVATEER_DECRYPT_WORKERS"] = "0"
        configs["issuer"] = issuer.settings(folder)
        for name, settings in configs.items():
            settings["PRIVATEER_SENDER_KEYS"] = str(TRUSTED[0])
            if cluster and name != "issuer":
                settings |= _shared(Role(name), cluster, folder)
        (folder / "trusted").mkdir()
        self.services = {
            role: ServiceProcess(role, configs[role], folder / f"{role}.log", self._http) for role in (*reversed(Role),)
        }
        for role in clocks:
            self.services[role].set_clock(0)
        self.totals = {PLAIN: Totals(), MIXED: Totals()}
        self.given_up: set[tuple[str, int]] = set()
        self._senders: list[Sender] = []

    @property
    def server(self) -> ServiceProcess:
        return self.services[Role.SERVER]

    @property
    def database(self) -> Cluster:
        assert self.cluster, "the data are in folders"
        return self.cluster

    @property
    def shuffler(self) -> ServiceProcess:
        return self.services[Role.SHUFFLER]

    def data(self, role: Role) -> Path:
        """The folder of a service."""
        return Path(self.services[role].settings["PRIVATEER_DATA"])

    def start(self) -> None:
        """Start the services, and create the experiments."""
        for role, service in self.services.items():
            service.start()
            if role is Role.ISSUER:
                service.wait()  # the others read its keys
        self.wait()
        for changes in (_PLAIN, _MIXED):
            answer = self.ask("POST", "/experiments", json=tables(changes))
            assert answer.status_code == 201, answer.text

    def ask(self, method: str, page: str, token: str = TOKEN, **options: Any) -> httpx.Response:
        """Ask the server's private listener as its operator."""
        headers = {"authorization": f"Bearer {token}"}
        return self._http.request(method, f"{self.server.private}{page}", headers=headers, **options)

    def wait(self) -> None:
        """Wait until all services are ready."""
        for service in self.services.values():
            service.wait()

    def people(self) -> None:
        """Let people report."""
        server, shuffler = self.server.public, self.shuffler.public
        issuer = self.services[Role.ISSUER].public
        policy = f"{server}/experiments/{{}}/policy"
        stops = (
            Stop(PLAIN, f"{server}/reports", policy.format(PLAIN)),
            Stop(PLAIN, f"{server}/reports", policy.format(PLAIN), issuer, server),
            Stop(MIXED, f"{shuffler}/experiments/{MIXED}/reports", policy.format(MIXED)),
        )
        self._senders = [Sender(stop, self.totals[stop.experiment]) for stop in stops]
        for sender in self._senders:
            sender.start()

    def settle(self) -> None:
        """Have every report answered for good."""
        for sender in self._senders:
            sender.settle()
            sender.end()

    def watch(self, seconds: float, not_ready: Counter[str] | None = None) -> list[Scrape]:
        """Scrape all services again and again; ``not_ready`` counts the readiness messages other than ready."""
        scrapes, end = list[Scrape](), time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            scrapes.append(self._scrape(not_ready))
            time.sleep(max(_LOOK_SECONDS + began - time.monotonic(), 0))
        return scrapes

    def watch_until(self, n_held: int) -> list[Scrape]:
        """Scrape all services until the shuffler holds so many reports of a batch, or a few more."""
        scrapes, end = self.watch(_LOOK_SECONDS), time.monotonic() + _PATIENCE
        while not n_held <= self.totals[MIXED].n_acknowledged_of_newest % BATCH < BATCH and time.monotonic() < end:
            scrapes += self.watch(_LOOK_SECONDS)
        return scrapes

    def _scrape(self, not_ready: Counter[str] | None) -> Scrape:
        pages: dict[str, str | None] = {}

        def look(role: Role, service: ServiceProcess) -> None:
            pages[role.value] = service.metrics()
            if not_ready is not None and (readiness := service.readiness()) != "ready":
                not_ready[f"{role}: {readiness}"] += 1

        now = time.time()
        threads = [threading.Thread(target=look, args=row) for row in self.services.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Scrape(now, {role.value: pages[role.value] for role in Role})

    def doctor(self) -> list[str]:
        """What the doctor finds wrong at each service."""
        return examine(self.services.values())

    def received(self, name: str) -> dict[int, int]:
        """Reports that the server counted, by version."""
        answer = self._http.get(f"{self.server.public}/experiments/{name}/history")
        return {row["version"]: row["received"] for row in answer.json()["rounds"]}

    def learned_versions(self, name: str) -> set[int]:
        """Versions whose round was learned from."""
        rounds = self._http.get(f"{self.server.public}/experiments/{name}/privacy").json()["rounds"]
        return {row["version"] for row in rounds if row["released"]}

    def complete(self) -> None:
        """Have people report until the round that waits at the shuffler has closed."""
        last = max(self.totals[MIXED].acknowledged, default=0)
        self.people()
        deadline = time.monotonic() + _PATIENCE
        while max(self.received(MIXED)) <= last and time.monotonic() < deadline:
            time.sleep(0.5)
        self.settle()

    def close(self) -> None:
        """End everything."""
        for sender in self._senders:
            sender.end()
        for service in self.services.values():
            service.stop()
        for disk in self.disks.values():
            disk.unmount()
        self._http.close()


def _shared(role: Role, cluster: Cluster, folder: Path) -> dict[str, str]:
    """Settings of a service whose data are in PostgreSQL."""
    store_key, signing_key = folder / f"{role}-store.key", folder / f"{role}-signing.key"
    store_key.write_bytes(secrets.token_bytes(32))
    store_key.chmod(0o600)
    load_or_create_key(signing_key, "--data")
    keys = {"PRIVATEER_DATABASE": cluster.make(), "PRIVATEER_STORE_KEY_FILE": str(store_key)}
    if role is Role.SHUFFLER:
        return keys | {"PRIVATEER_SIGNING_KEY": str(signing_key)}
    return keys | {"PRIVATEER_JOURNAL_DATABASE": cluster.make(), "PRIVATEER_PUBLICATION_KEY": str(signing_key)}


@contextmanager
def operated_world(
    folder: Path, cluster: Cluster | None = None, disks: set[Role] | None = None, clocks: set[Role] | None = None
) -> Iterator[OperatedWorld]:
    """Begin a world, and end it."""
    world = OperatedWorld(folder, cluster, disks or set(), clocks or set())
    try:
        world.start()
        yield world
    finally:
        world.close()
