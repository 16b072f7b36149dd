"""A process that dies between paying and the answer leaves a report that the next one sends: once paid, once drawn."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock

import httpx
import pytest

from privateer_client import Client, Ledger, Outcome
from privateer_core.wire.envelope import decode_envelope
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

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
        self.lock, self.seen, self.accepted = Lock(), set[bytes](), 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=published(make_spec()))
        with self.lock:
            if request.content in self.seen:
                return httpx.Response(409, content=b'{"type":"urn:privateer:problem:duplicate-report"}')
            self.seen.add(request.content)
            self.accepted += 1
        return httpx.Response(202, json={"accepted": 1, "refused": {}})


@pytest.fixture
def died(tmp_path: Path) -> Path:
    """The folder of a device whose process was killed while it sent its first byte."""
    (tmp_path / "publication").write_bytes(published(make_spec()))
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    return tmp_path


def client(folder: Path, endpoint: Counting) -> Client:
    return Client("http://s", ledger=Ledger(folder / "ledger.db"), transport=Notary().transport(endpoint))


def test_the_next_start_sends_what_was_paid_for(died: Path) -> None:
    endpoint = Counting()
    client(died, endpoint).join("test")
    assert endpoint.seen == {(died / "sent").read_bytes()}
    assert decode_envelope(next(iter(endpoint.seen))).header.experiment == "test"
    assert client(died, endpoint).resend() == {}
    assert len(Ledger(died / "ledger.db").payments()) == 1


def test_what_the_endpoint_took_before_the_device_died_counts_once(died: Path) -> None:
    endpoint = Counting()
    endpoint.seen.add((died / "sent").read_bytes())
    assert client(died, endpoint).resend() == {"test": Outcome.ACCEPTED}
    assert endpoint.accepted == 0


def test_processes_that_share_a_ledger_neither_lose_nor_double(died: Path) -> None:
    endpoint, ready = Counting(), Barrier(8)

    def resend(_: int) -> dict[str, Outcome]:
        device = client(died, endpoint)
        ready.wait(timeout=60)
        return device.resend()

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(resend, range(8)))
    assert endpoint.accepted == 1
    assert {outcome for one in told for outcome in one.values()} == {Outcome.ACCEPTED}


def test_a_seal_that_fails_is_not_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = client(tmp_path, Counting()).join("test")
    session.choose({"x1": 0.3, "x2": 0.9})

    def broken(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("privateer_client.participation.Sealer.seal", broken)
    with pytest.raises(MemoryError):
        session.report(1.0)
    assert Ledger(tmp_path / "ledger.db").payments() == []
