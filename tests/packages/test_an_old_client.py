"""Devices of the last release take part in experiments of today's services.

`kept/` has the wheels of that release, as they were published; a release puts its own there. This is the promise of
docs/releasing.md.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.services.processes import Services, free_port, run_services
from tests.support.specs import tables

KEPT = sorted((Path(__file__).parent / "kept").glob("*.whl"))
PEOPLE = 20
DEVICES = """
import json
import sys
from pathlib import Path
import privateer_client
import privateer_core
from privateer_client import Client, Ledger, Limits

wheels, server, shuffler, folder, name, context, people = sys.argv[1:]
assert privateer_client.__file__.startswith(wheels) and privateer_core.__file__.startswith(wheels)
limits = Limits(epsilon=float("inf"), local_epsilon=float("inf"), allow_central=True)
for number in range(int(people)):
    ledger = Ledger(Path(folder) / f"ledger-{number}.db")
    with Client(server, shuffler=shuffler, ledger=ledger, limits=limits) as client:
        session = client.join(name)
        session.choose(json.loads(context))
        session.report(1.0)
"""
SPECS = {
    "partition": {},
    "bandit": {"algorithm": {"name": "bandit"}, "context": None},
    "trial": {"algorithm": {"name": "trial"}, "segments": {"features": ["x1"], "bins": 4}},
    "linear": {"algorithm": {"name": "linear"}},
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for wheel in KEPT:
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port()) as at:
        yield at


def take_part(wheels: Path, at: Services, folder: Path, name: str, context: str) -> subprocess.CompletedProcess[str]:
    """Have devices of the kept wheels choose and report."""
    arguments = [wheels, at.server, at.shuffler, folder, name, context, PEOPLE]
    environment = os.environ | {"PYTHONPATH": str(wheels), "PRIVATEER_SENDER_KEY": str(at.sender_key)}
    return subprocess.run(
        [sys.executable, "-c", DEVICES, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_wheels_of_a_release_are_kept() -> None:
    assert {wheel.name.split("-")[0] for wheel in KEPT} == {"privateer_client", "privateer_core"}


@pytest.mark.parametrize("model", ["none", "local"])
@pytest.mark.parametrize("name", SPECS)
def test_devices_of_the_last_release_take_part(name, model, wheels, services, tmp_path):
    changes = {
        "experiment.name": f"{name}-{model}",
        "experiment.horizon": 10 * PEOPLE,
        "experiment.round_size": PEOPLE,
        "privacy.model": model,
    }
    data = {table: value for table, value in tables({**changes, **SPECS[name]}).items() if value is not None}
    if model == "none":
        del data["privacy"]["epsilon"]
    body = parse_spec(data).model_dump(mode="json", exclude_none=True)
    headers = {"Authorization": f"Bearer {services.token}"}
    created = httpx.post(f"{services.admin}/experiments", json=body, headers=headers, timeout=60)
    assert created.status_code == 201, created.text
    context = '{"x1": 0.4, "x2": 0.9}' if "context" in data else "{}"
    process = take_part(wheels, services, tmp_path, f"{name}-{model}", context)
    assert process.returncode == 0, process.stderr
    facts = httpx.get(f"{services.server}/experiments/{name}-{model}").json()
    closed, open_still = (2, 0), (1, PEOPLE)  # rounds of a trial have more people
    assert (facts["version"], facts["received"]) in (closed, open_still)
