"""Services for the doctor's tests, and copies of their folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from privateer_lab.services.processes import free_port, run_services
from tests.support.doctor import TOKEN, Deployment, report
from tests.support.servers import SHUFFLED, SMALL
from tests.support.specs import tables


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("doctor")
    data, early, killed = folder / "data", folder / "early", folder / "killed"
    with run_services(data, free_port(), free_port(), TOKEN) as at:
        for changes in (SMALL, SHUFFLED | {"experiment.name": "shuffled"}):
            headers = {"authorization": f"Bearer {TOKEN}"}
            httpx.post(f"{at.admin}/experiments", json=tables(changes), headers=headers).raise_for_status()
        report(at, "test", f"{at.server}/reports", 19)
        report(at, "shuffled", f"{at.shuffler}/experiments/shuffled/reports", 5)
        shutil.copytree(data, early)
        report(at, "test", f"{at.server}/reports", 1)  # the round closes
        report(at, "test", f"{at.server}/reports", 3)
        httpx.get(f"{at.server}/log/head").raise_for_status()  # the journal takes what a head is signed for
        for name in ("server", "shuffler"):
            at.processes.kill(name)
        shutil.copytree(data, killed)
        for name in ("server", "shuffler"):
            at.processes.start(name)
        for name in ("server", "shuffler"):
            at.processes.wait(name)
        yield Deployment(at, data, early, killed)


@pytest.fixture
def data(deployment: Deployment, tmp_path: Path) -> Path:
    """The folder of killed services, to be damaged."""
    return Path(shutil.copytree(deployment.killed, tmp_path / "data"))
