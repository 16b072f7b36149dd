"""Devices that wait, return, or come tomorrow."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Ledger, ReportStatus
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_lab.load.driver import run_load
from privateer_lab.services.processes import Services, free_port, run_services
from tests.integration.test_changes import CONTEXT, device
from tests.support.clocks import Hands
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import pair
from tests.support.servers import SHUFFLED
from tests.support.specs import make_spec

DAY = 86_400.0


async def take_part(client: AsyncClient) -> ReportStatus:
    session = await client.join("test")
    await session.choose(CONTEXT)
    return await session.report(1.0)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "partition"},
        pytest.param({"name": "linear"}, marks=pytest.mark.nightly),
        pytest.param({"name": "additive"}, marks=pytest.mark.nightly),
    ],
    ids=lambda section: section["name"],
)
async def test_reports_of_one_person_in_several_rounds_share_a_promise(tmp_path, algorithm):
    (tmp_path / "trusted").mkdir()
    clock = Hands()
    async with pair(tmp_path) as services:
        created = await services.api.create(SHUFFLED | {"experiment.reports_per_person": 2, "algorithm": algorithm})
        assert created.status_code == 201
        for version in (1, 2):
            publication = await services.api.publication()
            assert await take_part(device(services, tmp_path / "one.db", clock)) is ReportStatus.ACCEPTED
            assert await services.uploads(publication, sealed_reports(publication, 99, seed=version)) == 99
            assert (await services.version(version + 1))["accepted"] == 100 * version
            clock.time += DAY
        assert await take_part(device(services, tmp_path / "one.db", clock)) is ReportStatus.ALREADY_REPORTED
        record = (await services.api.client.get("/experiments/test/privacy")).json()
    (cost,) = Ledger(tmp_path / "one.db").payments()
    assert (cost.epsilon, cost.delta, cost.made, cost.version) == (1.0, 1e-6, 2, 2)
    assert record["reports_per_person"] == 2
    (certificate,) = read_certificates(record).values()
    joint_claim, colluding = recompute(certificate)
    assert joint_claim.holds
    assert 0.9e-6 < joint_claim.recomputed_delta < 1e-6
    assert colluding.epsilon == cost.local_epsilon == 2 * max(row["mechanism"]["epsilon"] for row in record["rounds"])
    record["rounds"][0]["mechanism"]["epsilon"] = 3.0  # what a person who reports once may spend
    with pytest.raises(SpecError, match="more than a report's share"):
        read_certificates(record)


TOMORROW_DAY = 86_400
PEOPLE = {"population.name": "peaks", "experiment.horizon": 1000, "experiment.conversion_window_seconds": TOMORROW_DAY}
LOCAL = {**PEOPLE, "experiment.round_size": 40}
SHUFFLE = {
    **PEOPLE,
    "experiment.round_size": 100,
    "privacy.model": "shuffle",
    "privacy.delta": 1e-6,
    "privacy.min_batch": 100,
}
DEVICE = """
import os, signal, sys
from privateer_core.clock import SystemClock
from privateer_client import Client, Ledger, Limits

server, shuffler, ledger, day, death = sys.argv[1:]

class Later(SystemClock):
    def now(self):
        return super().now() + float(day)

clock = Later()
limits = Limits(epsilon=4, delta=1e-5, local_epsilon=8, min_batch=100)
client = Client(server, shuffler=shuffler, limits=limits, ledger=Ledger(ledger, clock=clock), clock=clock)
if death:
    session = client.join("test")
    print(session.choose({"x1": 0.25, "x2": 0.75}), session.report(1.0).value, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
print({name: outcome.value for name, outcome in client.flush().items()}.get("test", "nothing"), flush=True)
"""


def tomorrow_device(at: Services, ledger: Path, day: float, *, dies: bool = False) -> str:
    """Return the output of the device's process, so many days after the first."""
    arguments = [at.server, at.shuffler, str(ledger), str(day * TOMORROW_DAY), "dies" if dies else ""]
    process = subprocess.run([sys.executable, "-c", DEVICE, *arguments], capture_output=True, text=True, timeout=60)
    assert process.returncode == (-signal.SIGKILL if dies else 0), process.stderr
    return process.stdout.strip()


def create(at: Services, spec: Spec) -> None:
    body = spec.without_people().model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {at.token}"}
    assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201


def restart(at: Services, *names: str) -> None:
    """Kill services without a warning, and start them anew."""
    for name in reversed(names):
        at.processes.kill(name)
    for name in names:
        at.processes.start(name)
        at.processes.wait(name)


def facts(at: Services) -> dict[str, Any]:
    return dict(json.loads(httpx.get(f"{at.server}/experiments/test").content))


def wait_for_version(at: Services, version: int) -> dict[str, Any]:
    """What is known of the experiment once it has a version."""
    latest = time.monotonic() + 60
    while (status := facts(at))["version"] < version and time.monotonic() < latest:
        time.sleep(0.05)
    assert status["version"] == version
    return status


def report_others(at: Services, spec: Spec, people: int) -> None:
    """So many people report at once: their own windows are over."""
    run_load(
        "test", at.server, at.shuffler, sender_key=at.sender_key, population=spec.population, users=people, batch=20
    )


@pytest.mark.parametrize("changes", [pytest.param(LOCAL, marks=pytest.mark.nightly), SHUFFLE])
def test_a_choice_outlives_the_device_and_the_services(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec, ledger = make_spec(changes), tmp_path / "device.db"
    first = spec.experiment.round_size
    ports = free_port(), free_port()
    with run_services(tmp_path / "data", *ports, quiet=True) as at:
        create(at, spec)
        assert tomorrow_device(at, ledger, 0, dies=True).endswith("pending")
        report_others(at, spec, first)
        wait_for_version(at, 2)
        restart(at, "server", "shuffler")
        before = facts(at)["accepted"]
        assert tomorrow_device(at, ledger, 0) == "nothing"
        assert tomorrow_device(at, ledger, 1.1) == "accepted"
        assert tomorrow_device(at, ledger, 2) == "nothing"
        report_others(at, spec, first - 1)
        assert (before, wait_for_version(at, 3)["accepted"]) == (first, 2 * first)


@pytest.mark.nightly
def test_choices_before_the_horizon_are_reported_after_it_and_a_kill_loses_none(tmp_path: Path) -> None:
    spec, ledger = make_spec(LOCAL | {"experiment.horizon": 40}), tmp_path / "device.db"
    with run_services(tmp_path / "data", free_port(), free_port(), quiet=True) as at:
        create(at, spec)
        assert tomorrow_device(at, ledger, 0, dies=True).endswith("pending")
        report_others(at, spec, 40)
        before = wait_for_version(at, 2)
        assert before["status"] == "draining"
        assert tomorrow_device(at, ledger, 1.1) == "accepted"
        restart(at, "server")
        assert facts(at) == before | {"accepted": 41, "received": 1}


@pytest.mark.nightly
def test_a_device_that_never_reports_takes_no_place_of_another(tmp_path: Path) -> None:
    spec, ledger = make_spec(LOCAL), tmp_path / "device.db"
    with run_services(tmp_path / "data", free_port(), free_port(), quiet=True) as at:
        create(at, spec)
        assert tomorrow_device(at, ledger, 0, dies=True).endswith("pending")
        report_others(at, spec, 80)
        status = wait_for_version(at, 3)
        assert (status["accepted"], status["refused"]) == (80, {})
