"""The whole pipeline as processes over real sockets: every acknowledged report counts exactly once."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from privateer.experiment import Spec
from privateer_client import Client, Ledger, Outcome
from privateer_client.load import run_load
from privateer_lab.services import Processes, Services, free_port, running
from tests.support.specs import SHUFFLE, make_spec

SHUFFLED = {**SHUFFLE, "experiment.horizon": 6000, "privacy.min_batch": 1000}
LOCAL = {"experiment.horizon": 3000, "experiment.round_size": 500}


def create(at: Services, spec: Spec) -> None:
    body = spec.model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    assert httpx.post(f"{at.server}/experiments", json=body, headers=headers).status_code == 201


def facts(at: Services) -> dict[str, object]:
    return dict(httpx.get(f"{at.server}/experiments/test").json())


def counted(at: Services) -> int:
    """Reports that the server counts, and those that the shuffler holds for the next batch."""
    held = httpx.get(f"{at.shuffler}/experiments/test").json()["held"]
    return int(str(facts(at)["accepted"])) + int(held)


@contextmanager
def services(folder: Path) -> Iterator[Services]:
    with running(folder, free_port(), free_port()) as at:
        yield at


@pytest.mark.parametrize(("changes", "people"), [(SHUFFLED, 6000), (LOCAL, 3000)])
def test_people_teach_a_policy(tmp_path: Path, changes: dict[str, object], people: int) -> None:
    spec = make_spec(changes)
    with services(tmp_path) as at:
        create(at, spec)
        result = run_load("test", at.server, at.shuffler, users=people, population="peaks", batch=50, seed=1)
        assert (result.accepted, result.people, dict(result.refused)) == (people, people, {})
        deadline = time.monotonic() + 10
        while facts(at)["status"] != "finished" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert facts(at)["accepted"] == people
        with Client(at.server, shuffler=at.shuffler, ledger=Ledger(tmp_path / "ledger.db")) as device:
            session = device.join("test")
            assert session.choose({"x1": 0.5, "x2": 0.5}) in spec.experiment.arms
            assert session.report(1.0) is Outcome.NOT_ASKED


def test_four_lines_through_the_shuffler(tmp_path: Path) -> None:
    with services(tmp_path) as at:
        create(at, make_spec(SHUFFLED))
        with Client(at.server, shuffler=at.shuffler, ledger=Ledger(tmp_path / "ledger.db")) as client:
            session = client.join("test")
            session.choose({"x1": 0.2, "x2": 0.2})
            assert session.report(1.0) is Outcome.ACCEPTED
        assert httpx.get(f"{at.shuffler}/experiments/test").json()["held"] == 1


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
        result = run_load("test", at.server, at.shuffler, users=5000, population="peaks", batch=20, seed=1)
        killer.join()
        processes.wait(victim)
        lost = sum(result.refused.values())
        assert result.accepted + lost == 5000
        assert result.accepted > 4000
        # A batch on its way is held until the server's answer is in, and counts twice for that moment.
        deadline = time.monotonic() + 20
        while counted(at) != result.accepted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert counted(at) == result.accepted
