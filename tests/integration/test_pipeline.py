"""The whole pipeline as processes over real sockets: every acknowledged report counts exactly once."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Client, Ledger, ReportStatus
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.services.processes import Processes, Services, free_port, run_services
from tests.support.sealing import body_of
from tests.support.servers import MSGPACK
from tests.support.specs import SHUFFLE, make_spec

SHUFFLED = {**SHUFFLE, "experiment.horizon": 6000, "privacy.min_batch": 1000}
LOCAL = {"experiment.horizon": 3000, "experiment.round_size": 500}


def create(at: Services, spec: Spec) -> None:
    body = spec.model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201


def load(at: Services, **options: Any) -> LoadResult:
    return run_load("test", at.server, at.shuffler, sender_key=at.sender_key, **options)


def facts(at: Services) -> dict[str, Any]:
    return dict(httpx.get(f"{at.server}/experiments/test", timeout=60).json())


def is_settled(at: Services, folder: Path) -> bool:
    """Whether the shuffler holds a part of the server's round, and the server learns from no batch just now."""
    version = httpx.get(f"{at.shuffler}/experiments/test").json()["version"]
    status = facts(at)
    is_open = bool(version == status["version"] and status["received"] == 0)
    return is_open and len(list(folder.glob("*.db"))) == 1 and count_held(folder) < 1000


def wait_for_the_end(at: Services) -> None:
    """Batches arrive some time after the shuffler took their last report."""
    deadline = time.monotonic() + 30
    while facts(at)["status"] != "finished" and time.monotonic() < deadline:
        time.sleep(0.05)


def count_held(folder: Path) -> int:
    """Reports in the rounds of a shuffler."""
    count = 0
    for path in folder.glob("*.db"):
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as database:
            # A shuffler killed while it opened a round leaves a file without tables; one at work deletes files.
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'place'").fetchone():
                count += database.execute("SELECT SUM(taken) FROM place").fetchone()[0] or 0
    return count


@contextmanager
def services(folder: Path) -> Iterator[Services]:
    with run_services(folder, free_port(), free_port()) as at:
        yield at


CENTRAL = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.horizon": 3000,
    "experiment.min_round_fraction": 0.5,
}


@pytest.mark.parametrize(
    ("changes", "people"), [(SHUFFLED, 6000), pytest.param(LOCAL, 3000, marks=pytest.mark.nightly), (CENTRAL, 3000)]
)
def test_people_teach_a_policy(tmp_path: Path, changes: dict[str, object], people: int) -> None:
    spec = make_spec(changes)
    with services(tmp_path) as at:
        create(at, spec)
        result = run_load(
            "test",
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=people,
            population={"name": "peaks"},
            batch=50,
            seed=1,
        )
        assert (result.accepted, result.people, dict(result.refused)) == (people, people, {})
        wait_for_the_end(at)
        assert facts(at)["accepted"] == people
        with Client(at.server, shuffler=at.shuffler, ledger=Ledger(tmp_path / "ledger.db")) as device:
            privacy = httpx.get(f"{at.server}/experiments/test/privacy").json()
            assert sum(round_["received"] for round_ in privacy["rounds"] if round_["released"]) == people
            assert all(verdict.holds for verdict in recompute(read_certificates(privacy)[""]))
            session = device.join("test")
            assert session.choose({"x1": 0.5, "x2": 0.5}) in spec.experiment.arms
            assert session.report(1.0) is ReportStatus.NOT_REQUESTED


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [SHUFFLED, LOCAL])
@pytest.mark.parametrize("arms", [{"shares": [0.5, 0.3, 0.2]}, {"min_propensities": [0.1, 0.1, 0.1]}])
def test_a_source_reports_ahead_of_the_experiments_own_people(
    tmp_path: Path, changes: dict[str, object], arms: dict[str, object]
) -> None:
    source = {"name": "clinic", "participants": 2000, "epsilon": 2.0, **arms}
    with services(tmp_path) as at:
        create(at, make_spec({**changes, "experiment.horizon": 2000, "sources": [source]}))
        options = {"population": {"name": "peaks"}, "batch": 50}
        waiting: list[LoadResult] = []
        people = threading.Thread(target=lambda: waiting.append(load(at, users=2000, seed=1, **options)))
        people.start()
        source_run = run_load(
            "test", at.server, at.shuffler, sender_key=at.sender_key, users=2000, seed=2, cohort="clinic", **options
        )
        people.join()
        assert [(run.accepted, dict(run.refused)) for run in (source_run, *waiting)] == [(2000, {})] * 2
        wait_for_the_end(at)
        history = httpx.get(f"{at.server}/experiments/test/history").json()["rounds"]
        counts = [(row["cohort"], row["received"]) for row in history if row["batch_size"]]
        assert sum(count for cohort, count in counts if cohort) == sum(count for cohort, count in counts if not cohort)
        privacy = httpx.get(f"{at.server}/experiments/test/privacy").json()
        certificates = read_certificates(privacy)
        assert list(certificates) == ["", "clinic"]
        assert all(verdict.holds for certificate in certificates.values() for verdict in recompute(certificate))


def test_four_lines_through_the_shuffler(tmp_path: Path) -> None:
    with services(tmp_path) as at:
        create(at, make_spec(SHUFFLED))
        with Client(at.server, shuffler=at.shuffler, ledger=Ledger(tmp_path / "ledger.db")) as client:
            session = client.join("test")
            session.choose({"x1": 0.2, "x2": 0.2})
            assert session.report(1.0) is ReportStatus.ACCEPTED
        at.processes.kill("shuffler")
        assert count_held(tmp_path / "shuffler") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["server", "shuffler"])
def test_kill_minus_nine_in_mid_load_loses_and_doubles_nothing(tmp_path: Path, victim: str) -> None:
    """People retry the same bytes until they are answered: as many count as were acknowledged."""
    with services(tmp_path) as at:
        processes: Processes = at.processes
        create(at, make_spec(SHUFFLED))

        def murder() -> None:
            for _ in range(2):
                time.sleep(0.4)
                processes.kill(victim)
                processes.start(victim)

        killer = threading.Thread(target=murder)
        killer.start()
        result = run_load(
            "test",
            at.server,
            at.shuffler,
            sender_key=at.sender_key,
            users=5000,
            population={"name": "peaks"},
            batch=20,
            seed=1,
        )
        killer.join()
        processes.wait(victim)
        n_refused = sum(result.refused.values())
        assert result.accepted + n_refused == 5000
        assert result.accepted > 4000
        full = result.accepted // 1000 * 1000
        deadline = time.monotonic() + 60
        while facts(at)["accepted"] < full and time.monotonic() < deadline:
            time.sleep(0.1)
        # A batch on its way is held until the server's answer is in, be the next round open or not.
        while not is_settled(at, tmp_path / "shuffler") and time.monotonic() < deadline:
            time.sleep(0.1)
        processes.kill("shuffler")
        counted = facts(at)["accepted"] + count_held(tmp_path / "shuffler")
        # Who is cut off after a report was stored and before the answer may find the round closed when asking again.
        assert result.accepted <= counted <= result.accepted + n_refused


def send_junk(at: Services, people: int) -> None:
    """Upload random bytes of the right size to the open round, and ignore the answers."""
    publication = httpx.get(f"{at.server}/experiments/test/policy", headers=MSGPACK).content
    size = decode_publication(publication).round.report_size
    url = f"{at.shuffler}/experiments/test/reports"
    for _ in range(people):
        httpx.post(url, content=body_of(publication, [os.urandom(size)]), timeout=60)


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["server", "shuffler"])
def test_kill_minus_nine_during_junk_uploads_loses_and_doubles_nothing(tmp_path: Path, victim: str) -> None:
    """Rounds take several batches, some twice: valid reports count once. In the end junk fills the last batch."""
    small = {"experiment.round_size": 200, "privacy.min_batch": 200, "experiment.horizon": 100_000}
    with services(tmp_path) as at:
        processes: Processes = at.processes
        create(at, make_spec({**SHUFFLED, **small}))
        send_junk(at, 150)

        before = httpx.get(f"{at.shuffler}/experiments/test", timeout=60).json()

        def harass() -> None:
            while httpx.get(f"{at.shuffler}/experiments/test", timeout=60).json() == before:
                time.sleep(0.02)  # until people report
            for _ in range(3):
                processes.kill(victim)
                processes.start(victim)
                processes.wait(victim)
                with suppress(httpx.HTTPError):
                    send_junk(at, 30)

        killer = threading.Thread(target=harass)
        killer.start()
        result = load(at, users=1000, population={"name": "peaks"}, batch=20, seed=1)
        killer.join()
        n_refused = sum(result.refused.values())
        deadline = time.monotonic() + 60
        while facts(at)["accepted"] < result.accepted and time.monotonic() < deadline:
            send_junk(at, 40)
        assert result.accepted + n_refused == 1000
        assert result.accepted <= facts(at)["accepted"] <= result.accepted + n_refused
        assert facts(at)["refused"]["decryption-failed"] >= 150


@pytest.mark.parametrize("signal_", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_up_stops_its_services_on_a_signal(tmp_path: Path, signal_: int) -> None:
    ports = [free_port() for _ in range(4)]
    names = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")
    options = ["--data", str(tmp_path), *(part for pair in zip(names, map(str, ports), strict=True) for part in pair)]
    command = [sys.executable, "-c", "from privateer_lab.cli.command_line import main; main()", "up", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        while "privateer create" not in (line := up.stdout.readline()):
            assert up.poll() is None
        assert line.endswith(f" --admin-url http://127.0.0.1:{ports[2]}\n")
        up.send_signal(signal_)
        assert up.stdout.read().endswith("stopping\n")
        assert up.wait(timeout=20) == 0
    for port in ports:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")
