"""Devices and learners that are killed charge the budget once, and draw their noise once."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client import Client, Ledger, ReportStatus
from privateer_core.algorithms import algorithm
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_envelope
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.journal import Journal
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.crashes import snapshot_at
from tests.support.experiments import WEEK, Device, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, TOKEN, Api
from tests.support.specs import make_spec

# A process that dies between paying and the answer leaves a report that the next one sends: once paid, once drawn.


CHILD = """
import os, signal, sys
from pathlib import Path
import httpx
from privateer_client import Client, Ledger
from tests.support.notary import Notary

folder = Path(sys.argv[1])

def killed(request):
    if request.method == "GET":
        return httpx.Response(200, content=(folder / "publication").read_bytes())
    (folder / "sent").write_bytes(request.content)
    os.kill(os.getpid(), signal.SIGKILL)

session = Client("http://s", ledger=Ledger(folder / "ledger.db"), transport=Notary().transport(killed)).join("test")
session.choose({"x1": 0.3, "x2": 0.9})
session.report(1.0)
"""


class Counting:
    """An endpoint that counts each report once, as the server's does."""

    def __init__(self) -> None:
        self.lock, self.counted_bodies, self.accepted = Lock(), set[bytes](), 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=published(make_spec()))
        with self.lock:
            if request.content in self.counted_bodies:
                return httpx.Response(409, content=b'{"type":"urn:privateer:problem:duplicate-report"}')
            self.counted_bodies.add(request.content)
            self.accepted += 1
        return httpx.Response(202, json={"accepted": 1, "refused": {}})


@pytest.fixture
def killed_device_folder(tmp_path: Path) -> Path:
    """The folder of a device whose process was killed while it sent its first byte."""
    (tmp_path / "publication").write_bytes(published(make_spec()))
    process = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], timeout=60)
    assert process.returncode == -signal.SIGKILL
    return tmp_path


def client(folder: Path, endpoint: Counting) -> Client:
    return Client("http://s", ledger=Ledger(folder / "ledger.db"), transport=Notary().transport(endpoint))


def test_the_next_start_sends_the_paid_report(killed_device_folder: Path) -> None:
    endpoint = Counting()
    client(killed_device_folder, endpoint).join("test")
    assert endpoint.counted_bodies == {(killed_device_folder / "sent").read_bytes()}
    assert decode_envelope(next(iter(endpoint.counted_bodies))).header.experiment == "test"
    assert client(killed_device_folder, endpoint).flush() == {}
    assert len(Ledger(killed_device_folder / "ledger.db").payments()) == 1


def test_a_report_accepted_before_the_crash_counts_once(killed_device_folder: Path) -> None:
    endpoint = Counting()
    endpoint.counted_bodies.add((killed_device_folder / "sent").read_bytes())
    assert client(killed_device_folder, endpoint).flush() == {"test": ReportStatus.ACCEPTED}
    assert endpoint.accepted == 0


def test_processes_that_share_a_ledger_send_a_report_once(killed_device_folder: Path) -> None:
    endpoint, ready = Counting(), Barrier(8)

    def flush(_: int) -> dict[str, ReportStatus]:
        device = client(killed_device_folder, endpoint)
        ready.wait(timeout=60)
        return device.flush()

    with ThreadPoolExecutor(8) as pool:
        statuses_by_process = list(pool.map(flush, range(8)))
    assert endpoint.accepted == 1
    statuses = {status for statuses in statuses_by_process for status in statuses.values()}
    assert ReportStatus.ACCEPTED in statuses
    assert statuses <= {ReportStatus.ACCEPTED, ReportStatus.ALREADY_REPORTED}  # a faster process sent it, and erased it


def test_a_seal_that_fails_is_not_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = client(tmp_path, Counting()).join("test")
    session.choose({"x1": 0.3, "x2": 0.9})

    def broken(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("privateer_client.participation.Sealer.seal", broken)
    with pytest.raises(MemoryError):
        session.report(1.0)
    assert Ledger(tmp_path / "ledger.db").payments() == []


# Devices that are killed between a choice and the answer to the report on it pay once, and count once.


CHILD_OF_KILLED = """
import os, signal, sys
from pathlib import Path
import httpx
from privateer_client import Client, Ledger, Limits
from tests.support.notary import Notary

folder, place, start = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])

class Clock:
    def now(self): return start
    def monotonic(self): return start

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def answer(request):
    if request.method == "GET":
        if place == "asking" and start > 1_000_000:
            die()
        return httpx.Response(200, content=(folder / "publication").read_bytes())
    (folder / "sent").write_bytes(request.content)
    die()

limits = Limits(epsilon=float("inf"), delta=1e-5, allow_central=True)
ledger = Ledger(folder / "ledger.db", clock=Clock())
client = Client("http://s", ledger=ledger, limits=limits, clock=Clock(), transport=Notary().transport(answer))
if start == 1_000_000:
    if place == "keeping":
        import privateer_client.ledger.ledger
        privateer_client.ledger.ledger.encode_choice = die
    session = client.join("test")
    session.choose({"x1": 0.3, "x2": 0.9})
    if place == "telling":
        import privateer_client.ledger.ledger
        privateer_client.ledger.ledger.encode_choice = die
    session.report(1.0)
    die()
if place == "sealing":
    import privateer_client.person_choice
    privateer_client.person_choice.encode_envelope = die
if place == "paying":
    import privateer_client.ledger.ledger
    privateer_client.ledger.ledger._erase_choice = die
client.flush()
die()
"""


def kill_device(folder: Path, place: str, start: float) -> None:
    process = subprocess.run([sys.executable, "-c", CHILD_OF_KILLED, str(folder), place, str(start)], timeout=60)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "place",
    [
        "telling",
        "paying",
        *(pytest.param(place, marks=pytest.mark.nightly) for place in ("told", "asking", "sealing", "sending")),
    ],
)
def test_a_kill_anywhere_between_choice_and_answer_pays_once_and_counts_once(tmp_path: Path, place: str) -> None:
    server = Server(published(waiting_spec()))
    (tmp_path / "publication").write_bytes(server.body)
    kill_device(tmp_path, place, 1_000_000)
    later = 1_000_000 + 2 * WEEK
    if place not in ("told", "telling"):
        kill_device(tmp_path, place, later)
    was_paid = place == "sending"
    assert len(Ledger(tmp_path / "ledger.db").payments()) == was_paid
    assert len(Ledger(tmp_path / "ledger.db").experiments_with_choice()) == (not was_paid)
    clock = Hands()
    clock.time = later
    device = Device(tmp_path, server, clock)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert server.reward() == (0.0 if place == "telling" else 1.0)
    if was_paid:
        assert (tmp_path / "sent").read_bytes() == server.posts[0]
    assert not device.start().join("test").report_requested
    assert (len(server.posts), len(device.ledger().payments()), device.ledger().experiments_with_choice()) == (1, 1, [])


def test_a_kill_while_a_choice_is_stored_leaves_none(tmp_path: Path) -> None:
    server = Server(published(waiting_spec()))
    (tmp_path / "publication").write_bytes(server.body)
    kill_device(tmp_path, "keeping", 1_000_000)
    device = Device(tmp_path, server)
    assert device.ledger().experiments_with_choice() == []
    assert device.start().join("test").report_requested


# Whatever learns: a server that dies after a release goes on with the same state, and draws no second noise.


PEOPLE = 100


def spec_of(name: str, model: str) -> Spec:
    """A small instance, in rounds of 100 people."""
    spec = algorithm(name).spec.instances()[model]
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_size": PEOPLE, "horizon": 3 * PEOPLE}
    data["privacy"] |= {"min_batch": PEOPLE} if spec.privacy.trust.crowd is Crowd.BATCH else {}
    return type(spec).model_validate(data)


@asynccontextmanager
async def serving_api(data: Path, trusted: Path) -> AsyncIterator[Api]:
    settings = ServerSettings(data=data, admin_token=TOKEN, shuffler_keys=(trusted,), sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        yield Api(client)


async def fetch_learner_state(api: Api) -> tuple[Any, ...]:
    """Return the version, the learner's state and the result that the server exports."""
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    return document["version"], document["state"], document["result"]


async def send(api: Api, spec: Spec, key: Ed25519PrivateKey) -> None:
    """Have a whole round report."""
    publication = await api.publication()
    body = body_of(publication, sealed_reports(publication, PEOPLE))
    batched = spec.privacy.trust.crowd is Crowd.BATCH
    headers = {SIGNATURE_HEADER: BATCH.sign(body, key)} if batched else {}
    response = await api.client.post("/batches" if batched else "/reports", content=body, headers=headers)
    assert response.json()["accepted"] == PEOPLE


@pytest.mark.parametrize("name", ["bandit", "convex", "linear"])
@pytest.mark.parametrize("model", ["central", "shuffle"])
async def test_a_learner_goes_on_from_the_release_that_was_drawn(tmp_path, monkeypatch, name, model):
    """Planted: a server that dies before its release is on record draws a curator's noise again, and its state differs.

    In a shuffled batch all noise is in the reports, so that the state is the same.
    """
    spec, key, trusted = spec_of(name, model), Ed25519PrivateKey.generate(), tmp_path / "trusted"
    trusted.mkdir()
    (trusted / "one.pub").write_text(key.public_key().public_bytes_raw().hex() + "\n")
    data, copies = tmp_path / "data", {after: tmp_path / f"copy-{after}" for after in (False, True)}
    async with serving_api(data, trusted) as api:
        tables = spec.model_dump(mode="json", exclude_none=True)
        assert (await api.client.post("/experiments", json=tables, headers=ADMIN)).status_code == 201
        await send(api, spec, key)
        with monkeypatch.context() as patched:
            snapshots = [
                snapshot_at(patched, Journal, "record_publication", data, copies[after], after=after)
                for after in copies
            ]
            await send(api, spec, key)
        assert all(is_made() for is_made in snapshots)
        state_before, published = await fetch_learner_state(api), await api.publication()
    async with serving_api(copies[True], trusted) as api:
        assert (await fetch_learner_state(api), await api.publication()) == (state_before, published)
        await send(api, spec, key)
    async with serving_api(copies[False], trusted) as api:
        if spec.privacy.trust.crowd is Crowd.BATCH:
            assert await fetch_learner_state(api) == state_before
        else:
            assert await fetch_learner_state(api) != state_before
