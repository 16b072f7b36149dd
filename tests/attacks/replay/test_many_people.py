"""Workers with common participants lose and repeat no report: killed between steps, or all at the same time."""

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from privateer_client import Client, Ledger, ReportStatus
from tests.support.clocks import Hands
from tests.support.experiments import OPEN, WEEK, Server, waiting_spec
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.specs import make_spec

PEOPLE = [f"user-{number}" for number in range(6)]
WORKER = """
import json, os, signal, sys, threading
from pathlib import Path
import httpx
from privateer_client import Client, Ledger, Limits
from tests.support.notary import Notary

folder, place, people = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
sent, lock = [], threading.Lock()

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def answer(request):
    if request.method == "GET":
        return httpx.Response(200, content=(folder / "publication").read_bytes())
    with lock:
        with (folder / "sent").open("ab") as file:
            file.write(request.content.hex().encode() + b"\\n")
        sent.append(request.content)
        if place == "sending" and len(sent) == 3:
            die()
        if place == "away":
            return httpx.Response(503)
    return httpx.Response(202, json={"accepted": 1, "refused": {}})

client = Client("http://s", ledger=folder / "people.db", retry_timeout=0.0, transport=Notary().transport(answer))
if place == "paying":
    from privateer_client.ledger import ledger
    erase, calls = ledger._erase_choice, []
    def dying(*given):
        calls.append(given)
        if len(calls) == 3:
            die()
        return erase(*given)
    ledger._erase_choice = dying
if place == "at once":
    import concurrent.futures
    print("ready", flush=True)
    sys.stdin.readline()
    def visit(number):
        person = client.person(people[0])
        arm = person.join("test").choose({"x1": number / 8, "x2": 0.5})
        return [arm, person.report("test", 1.0)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        print(json.dumps(list(pool.map(visit, range(4)))))
    sys.exit()
for key in people:
    client.person(key).join("test").choose({"x1": 0.3, "x2": 0.9})
for key in people:
    client.person(key).report("test", 1.0)
die()
"""


def command(folder: Path, place: str) -> list[str]:
    return [sys.executable, "-c", WORKER, str(folder), place, ",".join(PEOPLE)]


@pytest.mark.parametrize("place", ["sending", "paying", "away"])
def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(tmp_path: Path, place: str) -> None:
    server = Server(published(make_spec()))
    (tmp_path / "publication").write_bytes(server.body)
    assert subprocess.run(command(tmp_path, place), timeout=60).returncode == -signal.SIGKILL
    bodies_before = (tmp_path / "sent").read_text().split()
    client = Client("http://s", ledger=tmp_path / "people.db", retry_timeout=0.0, transport=notarized(server))
    client.flush_people()
    outcomes = Counter(client.person(key).report("test", 1.0) for key in PEOPLE)
    # An outcome is on record with what is paid for it: nothing is known of whoever was being paid for.
    settled = {"sending": 3, "paying": 1, "away": 6}[place]
    assert outcomes == Counter({ReportStatus.ALREADY_REPORTED: settled, ReportStatus.ACCEPTED: 6 - settled})
    waited = {"sending": 1, "paying": 0, "away": 6}[place]
    sent_bodies = [body.hex() for body in server.posts]
    assert len(sent_bodies) == len(set(sent_bodies)) == {"sending": 4, "paying": 5, "away": 6}[place]
    assert len(set(bodies_before) & set(sent_bodies)) == waited  # what was paid for goes out again with the same bytes
    assert len(set(bodies_before) | set(sent_bodies)) == 6
    assert client.flush_people() == {}


def test_eight_concurrent_requests_of_a_person_get_one_arm(tmp_path: Path) -> None:
    (tmp_path / "publication").write_bytes(published(make_spec()))
    pipe = subprocess.PIPE
    workers = [subprocess.Popen(command(tmp_path, "at once"), stdin=pipe, stdout=pipe, text=True) for _ in "ab"]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    visits = [visit for worker in workers for visit in json.loads(worker.communicate(timeout=60)[0])]
    assert len({arm for arm, _ in visits}) == 1
    assert len(set((tmp_path / "sent").read_text().split())) == 1  # the same bytes may go out twice
    outcomes = Counter(outcome for _, outcome in visits)
    assert outcomes[ReportStatus.ACCEPTED] >= 1
    assert set(outcomes) <= {ReportStatus.ACCEPTED, ReportStatus.ALREADY_REPORTED, ReportStatus.NOT_REQUESTED}


def test_due_reports_are_sent_in_random_order(tmp_path: Path) -> None:
    """An endpoint that sees two experiments' reports in one order could tie each person's together."""
    clock, orders, keys = Hands(), [], [f"user-{number}" for number in range(30)]
    for name in ("one", "two"):
        server, folder = Server(published(waiting_spec())), tmp_path / name
        folder.mkdir()
        (folder / "people.db.key").write_bytes(bytes(32))  # the same keyed hashes
        ledger = Ledger(folder / "people.db", clock=clock)
        client = Client("http://s", ledger=ledger, clock=clock, limits=OPEN, transport=notarized(server))
        for key in keys:
            client.person(key).join("test").choose({"x1": 0.3, "x2": 0.9})
        clock.time += 2 * WEEK
        places = {ledger.person(key)._person: key for key in keys}
        due = [places[other._person] for other in ledger.ledgers_due()]
        orders.append(due)
        assert sorted(due) == sorted(keys)
        assert due != [places[person] for person in sorted(places)]
    assert orders[0] != orders[1]


def test_a_hanging_endpoint_delays_no_arm_of_others(tmp_path: Path) -> None:
    """Reports that get no answer wait; people go on being decided for."""
    server = Server(published(make_spec()))
    client = Client("http://s", ledger=tmp_path / "people.db", retry_timeout=0.0, transport=notarized(server))
    client.person("a").join("test").choose({"x1": 0.3, "x2": 0.9})
    server.answer = httpx.ConnectTimeout("hangs")
    assert client.person("a").report("test", 1.0) is ReportStatus.PENDING
    assert client.person("b").arm("test", {"x1": 0.3, "x2": 0.9}, default="d", within=5.0).fallback is None
    server.answer = None
    assert client.flush_people() == {"test": Counter({ReportStatus.ACCEPTED: 1})}
