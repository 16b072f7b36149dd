"""Devices that are killed between a choice and the answer to the report on it pay once, and count once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from privateer_client import Ledger, Outcome
from tests.support.clocks import Hands
from tests.support.experiments import WEEK, Device, Server, waiting_spec
from tests.support.publications import published

CHILD = """
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

limits = Limits(epsilon=float("inf"), delta=1e-5, curator=True)
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
    privateer_client.ledger.ledger._erase = die
client.resend()
die()
"""


def killed(folder: Path, place: str, start: float) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, str(folder), place, str(start)], timeout=60)
    assert done.returncode == -signal.SIGKILL


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
    killed(tmp_path, place, 1_000_000)
    later = 1_000_000 + 2 * WEEK
    if place not in ("told", "telling"):
        killed(tmp_path, place, later)
    was_paid = place == "sending"
    assert len(Ledger(tmp_path / "ledger.db").payments()) == was_paid
    assert len(Ledger(tmp_path / "ledger.db").choices()) == (not was_paid)
    clock = Hands()
    clock.time = later
    device = Device(tmp_path, server, clock)
    assert device.start().resend() == {"test": Outcome.ACCEPTED}
    assert server.reward() == (0.0 if place == "telling" else 1.0)
    if was_paid:
        assert (tmp_path / "sent").read_bytes() == server.sent[0]
    assert not device.start().join("test").asked
    assert (len(server.sent), len(device.ledger().payments()), device.ledger().choices()) == (1, 1, [])


def test_a_kill_while_a_choice_is_kept_leaves_none(tmp_path: Path) -> None:
    server = Server(published(waiting_spec()))
    (tmp_path / "publication").write_bytes(server.body)
    killed(tmp_path, "keeping", 1_000_000)
    device = Device(tmp_path, server)
    assert device.ledger().choices() == []
    assert device.start().join("test").asked
